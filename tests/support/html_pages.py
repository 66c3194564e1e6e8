"""A parser of HTML pages, and stores from which pages are written."""

from html.parser import HTMLParser

from cwrnn.experiments.sweep.store import Store

HOSTILE = '<script>alert("1")</script> & \' $x_{ </pre> {{ 7 * 7 }} -->'
"""A name that must never be executed."""


class Page(HTMLParser):
    """The tags, links, ids, sounds, styles and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.sounds: list[str] = []
        self.labels: list[str] = []
        self.text = ""
        self.preformatted: dict[str, str] = {}
        self.styles = ""
        self._open: list[str] = []
        self._name = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.links += [values[name] for name in ("src", "href", "xlink:href", "action", "data") if name in values]
        self.ids += [values["id"]] if "id" in values else []
        self.styles += values.get("style") or ""
        assert not any(name.startswith("on") for name in values)
        if tag == "audio":
            self.sounds.append(values["src"])
            self.labels += [values["aria-label"]] if values.get("aria-label") else []
        self._open.append(tag)
        self._name = values.get("id", "") if tag == "pre" else self._name

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        if "style" in self._open:
            self.styles += data
        else:
            self.text += data
        if "pre" in self._open:
            self.preformatted[self._name] = self.preformatted.get(self._name, "") + data


def fill_store(folder, records, data, command="cwrnn reproduce generation --out here"):
    folder.mkdir(exist_ok=True)
    store = Store.open(folder, create=True, command=command)
    for each in data.values():
        store.add_dataset(each)
    store.add(*records)
    return store
