"""Bodies of the ingest routes: how they may be packed and how large they may be."""

import gzip
import zlib

import pytest

from api.body import MB, Raw, unpack
from api.errors import TooLarge, UnsupportedMedia
from core.errors import BadInput

JSON = "application/json"


def test_a_plain_body_is_taken_as_it_is() -> None:
    assert unpack(Raw(b"[1]", JSON, ""), 1) == b"[1]"


def test_gzip_is_unpacked_even_in_several_members_and_unannounced() -> None:
    packed = gzip.compress(b"[1,") + gzip.compress(b"2]")
    assert unpack(Raw(packed, JSON, "gzip"), 1) == b"[1,2]"
    assert unpack(Raw(packed, "", ""), 1) == b"[1,2]"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        pytest.param(Raw(gzip.compress(b"x" * (MB + 1)), JSON, "gzip"), TooLarge, id="grows past the limit"),
        pytest.param(Raw(b"x" * (MB + 1), JSON, ""), TooLarge, id="is past the limit unpacked"),
        pytest.param(Raw(gzip.compress(b"[1]")[:-4], JSON, "gzip"), BadInput, id="cut short"),
        pytest.param(Raw(gzip.compress(b"[1]") + b"junk", JSON, "gzip"), BadInput, id="junk behind it"),
        pytest.param(Raw(b"[1]", JSON, "gzip"), BadInput, id="says gzip and is not"),
        pytest.param(Raw(b"", JSON, ""), BadInput, id="empty"),
        pytest.param(Raw(b" \r\n", JSON, ""), BadInput, id="blank"),
        pytest.param(Raw(gzip.compress(b""), JSON, "gzip"), BadInput, id="empty when unpacked"),
        pytest.param(Raw(b"[1]", JSON, "br"), UnsupportedMedia, id="another packing"),
    ],
)
def test_a_wrong_packing_is_refused(raw: Raw, kind: type[BadInput]) -> None:
    with pytest.raises(kind):
        unpack(raw, 1)


def test_a_bomb_is_never_unpacked_whole() -> None:
    bomb = zlib.compressobj(wbits=31)
    packed = b"".join(bomb.compress(b"\0" * MB) for _ in range(64)) + bomb.flush()
    with pytest.raises(TooLarge, match="unpacks to more than 2 MB"):
        unpack(Raw(packed, JSON, "gzip"), 2)
