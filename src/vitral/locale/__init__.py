"""Catalogues of sentences: `LANGUAGE/ROOM.po`, the English sentence as key; see `vitral.core.language`."""
