"""A branch keeps its tokens, also where the tokenizer would cut the same text differently."""

import pytest
from browser import in_node, needs_web

BODY = """
const pieces = ["a", "b", "ab", "c"];
const encode = (text) => ({ ids: (text.match(/ab|[abc]/g) ?? []).map((each) => pieces.indexOf(each)), unseen: [] });
const about = { context: 8, vocabulary: 4, layers: 1, heads: 1, language: "en", names: [], passages: [],
  stream: [], contributions: [] };
vitral.source.value = { about, encode, decode: (ids) => ids.map((id) => pieces[id] ?? "").join("") };
const now = () => [vitral.text.value, vitral.encoded.value.ids];
const seen = [];
vitral.text.value = "ca";
vitral.shown.value = { ids: [3, 0], values: {}, compared: null, edits: [] };
vitral.branch([1]);
seen.push(now());
const address = vitral.written();
vitral.text.value = "cabc";
seen.push(now(), vitral.written().includes("i="));
vitral.back();
seen.push(now());
vitral.read(address);
seen.push(now());
vitral.read(address.replace("i=3.0.1", "i=3.0.9"));
seen.push(now());
vitral.read(address.replace("i=3.0.1", "i=3.0"));
seen.push(now());
return seen;
"""


@pytest.mark.merge
@needs_web
def test_branches_and_addresses_keep_the_tokens() -> None:
    (seen,) = in_node(BODY, [None], "page/state", "page/decoding/session")
    branched, typed, is_kept, back, read, unknown, other = seen
    assert branched == ["cab", [3, 0, 1]]
    assert typed == ["cabc", [3, 2, 3]]
    assert not is_kept
    assert back == ["ca", [3, 0]]
    assert read == branched
    assert unknown == other == ["cab", [3, 2]]
