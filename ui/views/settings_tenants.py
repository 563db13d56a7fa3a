"""Tenants, and the ordered rules that say whom a request is charged to: edit, preview, publish with a reason."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from core.errors import BadInput
from core.windows import Window
from ui.client import ApiProblem
from ui.components.filters import choose_group, choose_range
from ui.components.notes import page_head
from ui.components.session import fetch, get_client, now, show_problem
from ui.components.tables import download, draw_table
from ui.view_models import ranges
from ui.view_models.identity import (
    GROUP_WORDS,
    ORDER,
    PART_TITLES,
    RULE,
    TENANT_GROUPS,
    THEN,
    THENS,
    WHEN,
    client_words,
    default_org,
    digest,
    idle_rules,
    moves_table,
    rule_rows,
    rules_of,
    state_words,
    tenants_table,
    versions_table,
)

STARTS = {"said": "What the source said", "empty": "Nothing"}
HELP = """A rule applies when all its conditions hold. Write `FIELD = VALUE`, `FIELD ^= PREFIX`, `FIELD ~ GLOB*` or
`FIELD =~ PATTERN`, joined by `AND`. Fields: org, team, project, user, key_id, key_alias, service_tier, requested_model, model_id,
cluster, namespace, gateway, tag, tag.NAME, header.NAME, metadata.NAME: what the source said, not what an earlier rule made of it.
`$1` in a cell is what a pattern caught; `""` empties a part; a blank cell leaves it alone.

Publishing makes a new version. It maps records that finish from the next minute on; what was counted before stays as it was."""


def _tenants() -> None:
    st.subheader("Tenants")
    left, right = st.columns(2)
    with left:
        chosen = choose_range("30d", now())
    with right:
        by = choose_group(GROUP_WORDS, "team")
    window = ranges.parsed(fetch("overview", {})["meta"]) if chosen is None else chosen
    answer = fetch("tenants", {**ranges.params(ranges.elapsed(window, now())), "by": ",".join(TENANT_GROUPS[by])})
    if not answer["rows"]:
        st.info("No tenant finished a request in this time range.", icon=":material/hourglass_empty:")
        return
    shown = tenants_table(answer["rows"], by)
    days = Window(*(_time(answer[name]) for name in ("window_start", "window_end")))
    st.caption(f"{ranges.words(days)}, whole UTC days · {answer['basis']} basis, closed quarter hours")
    draw_table(shown, "tenants")
    download(shown, f"tenants-by-{by}-{days.start:%Y%m%d}-{days.end:%Y%m%d}.csv")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _editor(current: dict[str, Any]) -> dict[str, Any] | None:
    """The edited set, None while it is not in order."""
    st.subheader("Identity rules")
    st.caption(state_words(current))
    with st.expander("How rules are written", icon=":material/help:"):
        st.markdown(HELP)
    edited = st.data_editor(
        rule_rows(current["rules"]),
        num_rows="dynamic",
        width="stretch",
        hide_index=True,
        key=f"rules_{current['version']}",
        column_config={
            ORDER: st.column_config.NumberColumn(width="small", step=1, help="Rules apply in this order"),
            RULE: st.column_config.TextColumn(help="Its name, for the preview and the history"),
            WHEN: st.column_config.TextColumn(width="large", help="Conditions joined by AND"),
            **{title: st.column_config.TextColumn(help=f"Sets the {title.lower()}") for title in PART_TITLES.values()},
            THEN: st.column_config.SelectboxColumn(options=list(THENS.values()), default=THENS["stop"], width="small"),
        },
    )
    left, right = st.columns(2)
    given = current["rules"]["start"]
    start = left.selectbox("A path starts as", list(STARTS), index=list(STARTS).index(given), format_func=lambda key: STARTS[key])
    default = right.text_input("Organisation where none is left", value=default_org(current), max_chars=120)
    marks = st.text_input(
        "Set by the gateway, whatever the client wrote",
        value=", ".join(current["rules"]["gateway_sets"]),
        placeholder="header.x-team, tag",
        help="Guards refuse by what the gateway proves (key, team, its own tags and labels). Of user, tag, header.NAME and "
        "metadata.NAME, name those here that your gateway overwrites.",
    )
    try:
        return rules_of(list(edited), start, default, marks)
    except BadInput as error:
        st.error(str(error), icon=":material/rule:")
        return None


def _preview(rules: dict[str, Any]) -> bool:
    """Offer a preview and show the one asked for; whether it is of these very rules."""
    if st.button("Preview the last 7 days", key="preview", icon=":material/preview:"):
        try:
            with st.spinner("Reading the archive …"):
                answer = get_client(st.session_state["token"]).identity_preview({"rules": rules})
        except ApiProblem as problem:
            show_problem(problem)
            return False
        st.session_state["identity_preview"] = (digest(rules), answer)
    of, answer = st.session_state.get("identity_preview", ("", {}))
    if of != digest(rules):
        st.caption("Publishing asks for a preview of the rules as they stand above.")
        return False
    window = Window(_time(answer["window_start"]), _time(answer["window_end"]))
    st.caption(f"{ranges.words(window)} · {answer['basis']} basis{' · ' if answer['cost_reason'] else ''}{answer['cost_reason']}")
    draw_table(moves_table(answer), "moves")
    if words := client_words(rules):
        st.info(f"Guards judge these without what the client wrote: {'; '.join(words)}", icon=":material/shield:")
    if idle := idle_rules(answer):
        st.warning(f"These rules apply to nothing in this time: {', '.join(idle)}", icon=":material/rule:")
    return True


def _publish(rules: dict[str, Any], version: int, *, previewed: bool) -> None:
    reason = st.text_input("Reason", key=f"reason_{version}", max_chars=500, placeholder="Why the rules change").strip()
    ready = previewed and bool(reason)
    if st.button("Publish", key="publish", type="primary", disabled=not ready, icon=":material/publish:"):
        try:
            made = get_client(st.session_state["token"]).publish_rules({"rules": rules, "reason": reason}, version)
        except ApiProblem as problem:
            show_problem(problem)
            return
        st.session_state.pop("identity_preview", None)
        st.session_state["identity_notice"] = state_words(made)
        st.cache_data.clear()
        st.rerun()


def page() -> None:
    page_head("Tenants and identity rules")
    if notice := st.session_state.pop("identity_notice", ""):
        st.success(f"Published. {notice}", icon=":material/check:")
    _tenants()
    current = fetch("identity_rules", {})
    rules = _editor(current)
    if rules is not None:
        if digest(rules) == digest(current["rules"]):
            st.caption("These are the published rules. Change them, then preview and publish.")
        previewed = _preview(rules)
        _publish(rules, current["version"], previewed=previewed and digest(rules) != digest(current["rules"]))
    st.subheader("Versions")
    versions = fetch("identity_versions", {})["versions"]
    if versions:
        draw_table(versions_table(versions), "versions")
    else:
        st.caption("No version was published yet.")


page()
