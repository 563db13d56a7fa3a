"""How each actuator's switches are named, and which of them there are. No connection is needed to check a name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.errors import BadInput
from core.fleet import Move

_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "litellm": (
        re.compile(r"key/[0-9a-f]{64}|(?:team|model)/[A-Za-z0-9._:-]{1,200}"),
        "key/HASH (the token of /key/info, 64 hex digits, never the key itself), team/ID or model/ID",
    ),
    "kubernetes": (
        re.compile(rf"(?:hpa|scaledobject|deployment)/{_NAME}/{_NAME}"),
        "hpa/NAMESPACE/NAME, scaledobject/NAMESPACE/NAME (KEDA) or deployment/NAMESPACE/NAME",
    ),
    "ec2": (re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d/[^/\x00-\x1f]{1,255}"), "REGION/NAME of an Auto Scaling group"),
}
MOVES: Mapping[str, tuple[Move, ...]] = {"litellm": ("block", "limit"), "kubernetes": ("freeze",), "ec2": ("freeze",)}


def check_address(actuator: str, address: str | None) -> None:
    """Raises BadInput for an unknown actuator, or an address not of its form (None: only the actuator is checked)."""
    if actuator not in FORMS:
        raise BadInput(f"must be one of {', '.join(sorted(FORMS))}", field="actuator", value=actuator)
    form, told = FORMS[actuator]
    if address is not None and form.fullmatch(address) is None:
        shown = None if "sk-" in address else address
        raise BadInput(f"is no address of {actuator}", field="address", value=shown, hint=f"write {told}")
