// Runs in an isolated world of the page, once per look, and only reads: no focus, no scrolling, no cloning (a clone of a
// custom element would run the page's constructor), no event, no style, no attribute. `what` is "look", "text_boxes",
// "serialise" or "secret_elements"; `config` comes from the Redactor; `frames` are the frame elements whose documents are
// read apart. No secret is ever handed in: which visible text holds one is decided outside, between "look" and "text_boxes".
(what, config, ...frames) => {
  const started = performance.now();
  const overdue = () => performance.now() - started > config.milliseconds;
  const plain = (name) => String(name || "").toLowerCase().replace(/[^a-z0-9]/g, "");
  // A form or document answers with a control of that name before its own property (`<form name="body">`): ask the prototype.
  const own = (prototype, name) => {
    const found = Object.getOwnPropertyDescriptor(prototype, name);
    return found.get ? (object) => found.get.call(object) : (object, ...rest) => found.value.call(object, ...rest);
  };
  const [localName, shadowRoot, attributesOf, nextElement, matches, clientRects, boundingBox, getAttribute] = [
    "localName", "shadowRoot", "attributes", "nextElementSibling", "matches", "getClientRects", "getBoundingClientRect", "getAttribute",
  ].map((name) => own(Element.prototype, name));
  const [nodeType, childNodes, parentNode] = ["nodeType", "childNodes", "parentNode"].map((name) => own(Node.prototype, name));
  const firstOf = [Element, Document, DocumentFragment].map((type) => [type, own(type.prototype, "firstElementChild")]);
  const firstElement = (root) => firstOf.find(([type]) => root instanceof type)[1](root);
  const ofDocument = (name) => own(Document.prototype, name)(document);
  const attribute = (element, name) => getAttribute(element, name) || "";
  const fields = new Set(config.fields);

  const nameKind = (name) => {
    const word = plain(name);
    if (!word) return null;
    if (fields.has(word)) return "field";
    if (word === "pass" || config.password_names.some((part) => word.includes(part))) return "password";
    if (config.exact_names.includes(word) || config.token_names.some((part) => word.includes(part))) return "token";
    return null;
  };
  const fieldKind = (element) => {
    const tag = localName(element);
    if (tag !== "input" && tag !== "textarea" && tag !== "select" && tag !== "meta" && tag !== "output") return null;
    if (tag === "input" && element.type === "password") return "password";
    const completed = attribute(element, "autocomplete").toLowerCase().split(/\s+/);
    if (completed.some((word) => config.autocomplete.includes(word))) return "password";
    for (const name of ["name", "id", "property"]) {
      const kind = nameKind(attribute(element, name));
      if (kind) return kind;
    }
    if (tag !== "meta" && matches(element, ":autofill")) return "autofilled";
    return null;
  };
  const regionOf = (element) => config.selectors.some((selector) => matches(element, selector));

  // Depth first over the document and its open shadow trees.
  const walk = function* (root) {
    for (let element = firstElement(root); element; element = nextElement(element)) {
      yield element;
      if (shadowRoot(element)) yield* walk(shadowRoot(element));
      yield* walk(element);
    }
  };
  const rectangle = (box) => [box.left, box.top, box.width, box.height];
  const boxes = (element) => Array.from((element instanceof Range ? element.getClientRects() : clientRects(element)), rectangle).filter((box) => box[2] > 0 && box[3] > 0);

  if (what === "secret_elements") {
    const found = [];
    for (const element of walk(document)) {
      if (overdue()) throw new Error("interlock: out of time");
      if (regionOf(element) || fieldKind(element)) found.push(element);
    }
    return found;
  }

  // Where the parts [number, start, end] of the texts of the last look are now; all of a text that changed meanwhile.
  if (what === "text_boxes") {
    const kept = globalThis.interlockTexts || [];
    globalThis.interlockTexts = [];
    return config.parts.map(([number, start, end]) => {
      const [text, seen] = kept[number] || [];
      if (!text) return [];
      if (nodeType(text) !== Node.TEXT_NODE) return boxes(text);
      const range = new Range();
      range.selectNodeContents(text);
      if (text.data === seen) {
        range.setStart(text, start);
        range.setEnd(text, end);
      }
      return boxes(range);
    });
  }

  if (what === "look") {
    const texts = [];
    const whole = new Range();
    const visible = (box) => box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
    const readable = (owner, text, box) => {
      if (text.trim().length >= 4 && box.width > 0 && visible(box)) texts.push([owner, text]);
    };
    const readTexts = (root) => {
      for (const child of childNodes(root)) {
        if (nodeType(child) !== Node.TEXT_NODE || child.data.trim().length < 4) continue;
        whole.selectNodeContents(child);
        readable(child, child.data, whole.getBoundingClientRect());
      }
    };
    const regions = [];
    const values = [];
    const owners = frames.map(() => null);
    let pictured = 0;
    let elements = 0;
    let shadowText = 0;
    for (const element of walk(document)) {
      if (overdue()) throw new Error("interlock: out of time");
      const tag = localName(element);
      elements += 1;
      readTexts(element);
      if (tag === "input" || tag === "textarea") {
        const shown = element.type === "hidden" ? "" : element.value || attribute(element, "placeholder");
        readable(element, shown, boundingBox(element));
      }
      if (tag === "select") {
        readable(element, Array.from(element.selectedOptions, (option) => option.text).join(" "), boundingBox(element));
      }
      if (shadowRoot(element)) readTexts(shadowRoot(element));
      if (shadowRoot(element)) shadowText += shadowRoot(element).textContent.trim().length;
      if (regionOf(element)) {
        for (const inner of [element, ...walk(element)]) for (const box of boxes(inner)) regions.push(["region", ...box]);
      }
      const kind = fieldKind(element);
      if (kind) {
        const named = tag === "input" && element.type === "password" ? "password" : kind;
        if (tag === "meta") values.push([named, attribute(element, "content")]);
        if (tag === "input" || tag === "textarea") values.push([named, element.value], [named, attribute(element, "value")]);
        for (const box of boxes(element)) regions.push([kind, ...box]);
      }
      if (tag === "iframe" || tag === "frame" || tag === "object" || tag === "embed") {
        const number = frames.indexOf(element);
        const box = boundingBox(element);
        if (number < 0) {
          for (const one of boxes(element)) regions.push(["frame", ...one]);
        } else {
          const style = getComputedStyle(element);
          const scaleX = element.offsetWidth ? box.width / element.offsetWidth : 1;
          const scaleY = element.offsetHeight ? box.height / element.offsetHeight : 1;
          const left = element.clientLeft + parseFloat(style.paddingLeft || 0);
          const top = element.clientTop + parseFloat(style.paddingTop || 0);
          owners[number] = [box.left + left * scaleX, box.top + top * scaleY, box.width, box.height, scaleX, scaleY];
        }
      }
      if (tag === "img" || tag === "svg" || tag === "canvas" || tag === "video" || tag === "input") pictured += 1;
    }
    globalThis.interlockTexts = texts;
    const view = window.visualViewport;
    const entry = performance.getEntriesByType("navigation")[0];
    const body = ofDocument("body");
    return {
      url: ofDocument("URL"),
      title: ofDocument("title"),
      ready_state: ofDocument("readyState"),
      http_status: entry && entry.responseStatus ? entry.responseStatus : null,
      text_length: shadowText + (body ? own(HTMLElement.prototype, "innerText")(body).trim().length : 0),
      pictured,
      elements,
      visibility: ofDocument("visibilityState"),
      viewport: [innerWidth, innerHeight],
      scroll: [scrollX, scrollY],
      device_scale: devicePixelRatio,
      offset: view ? [view.offsetLeft, view.offsetTop] : [0, 0],
      regions,
      owners,
      texts: texts.map(([, text]) => text),
      values: values.filter(([, value]) => value.length > 0),
    };
  }

  // serialise
  const VOID = new Set(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]);
  const DROPPED = new Set(["script", "noscript", "base", "object", "embed"]);
  const out = [];
  const masked = {};
  let length = 0;
  let truncated = false;
  const put = (text) => {
    length += text.length;
    if (length > config.characters) truncated = true;
    else out.push(text);
  };
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
  const hide = (kind, where) => {
    const key = kind + " " + where;
    masked[key] = (masked[key] || 0) + 1;
    return "[masked:" + kind + "]";
  };
  const open = (element, tag, kind) => {
    put("<" + tag);
    for (const { name, value } of Array.from(attributesOf(element))) {
      const lower = name.toLowerCase();
      if (lower.startsWith("on") || lower === "srcdoc" || lower === "data-interlock-frame") continue;
      if (tag === "input" && (lower === "value" || lower === "checked")) continue;
      if (tag === "option" && lower === "selected") continue;
      if (tag === "meta" && kind && lower === "content") put(' content="' + hide(kind, "meta content") + '"');
      else put(" " + name + '="' + escaped(value) + '"');
    }
    if (tag === "input") {
      const value = element.type === "file" ? "" : element.value;
      if (value) put(' value="' + (kind ? hide(kind, "input value") : escaped(value)) + '"');
      if (element.checked) put(' checked=""');
    }
    if (tag === "option" && element.selected) put(' selected=""');
    if (tag === "iframe" || tag === "frame") put(' data-interlock-frame="' + frames.indexOf(element) + '"');
    put(">");
  };
  const node = (current) => {
    if (truncated) return;
    if (overdue()) throw new Error("interlock: out of time");
    if (nodeType(current) === Node.TEXT_NODE) {
      const parent = parentNode(current);
      put(parent instanceof Element && localName(parent) === "style" ? current.data.replace(/<\//g, "<\\/") : escaped(current.data));
      return;
    }
    if (nodeType(current) !== Node.ELEMENT_NODE || DROPPED.has(localName(current))) return;
    const tag = localName(current);
    const kind = fieldKind(current);
    if (regionOf(current)) {
      put("<" + (VOID.has(tag) ? "span" : tag) + ">" + hide("region", "element") + "</" + (VOID.has(tag) ? "span" : tag) + ">");
      return;
    }
    open(current, tag, kind);
    if (VOID.has(tag)) return;
    if (tag === "textarea" || (kind && (tag === "select" || tag === "output"))) {
      const value = current.value || "";
      put(value ? (kind ? hide(kind, tag + " value") : escaped(value)) : "");
    } else if (tag !== "iframe" && tag !== "frame") {
      if (shadowRoot(current)) {
        put('<template shadowrootmode="open">');
        for (const child of childNodes(shadowRoot(current))) node(child);
        put("</template>");
      }
      const inside = tag === "template" ? [] : childNodes(current);
      for (const child of inside) node(child);
    }
    put("</" + tag + ">");
  };
  for (const child of childNodes(document)) node(child);
  return { html: out.join(""), base: own(Node.prototype, "baseURI")(document), truncated, masked };
}
