"""The forms that Vitral knows, one file for each."""
