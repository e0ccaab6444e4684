"""The structure of a page: its tags with ids, names, classes, form fields and addresses, without any text."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "track",
    "wbr",
}
KEPT = {
    "action", "aria-controls", "aria-current", "aria-describedby", "aria-labelledby", "aria-live", "checked", "class",
    "colspan", "content", "disabled", "enctype", "for", "headers", "hidden", "href", "http-equiv", "id", "lang", "list",
    "max", "maxlength", "method", "min", "minlength", "multiple", "name", "open", "pattern", "readonly", "rel",
    "required", "role", "rows", "scope", "selected", "src", "step", "tabindex", "type",
}  # fmt: skip
WITH_VALUE = {
    "button",
    "checkbox",
    "hidden",
    "radio",
    "submit",
}  # whose value is not what a person typed


class Structure(HTMLParser):
    """Writes one line for each tag, indented by depth."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        has_value = tag in ("button", "option") or given.get("type") in WITH_VALUE
        kept = {name: value for name, value in given.items() if name in KEPT}
        kept |= {name: None for name in given if name.startswith("data-")}
        if has_value and "value" in given:
            kept["value"] = "<csrf_token>" if given.get("name") == "csrf_token" else given["value"]
        written = "".join(
            f" {name}" if value is None else f' {name}="{value}"'
            for name, value in sorted(kept.items())
        )
        self.lines.append(f"{'  ' * self._depth}<{tag}{written}>")
        self._depth += tag not in VOID

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._depth -= tag not in VOID

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag not in VOID


def structure(page: str) -> str:
    """Write the tags of a page without its text.

    >>> print(structure('<p class="a">Tea<br><b id="x" style="y">now</b></p>'))
    <p class="a">
      <br>
      <b id="x">
    """
    parser = Structure()
    parser.feed(page)
    parser.close()
    return "\n".join(parser.lines)
