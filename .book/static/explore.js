// The explorers of explorers.py: controls, and one bar a row for each state; nothing is loaded.
for (const box of document.querySelectorAll(".palslib-explorer")) {
  const { controls, states } = JSON.parse(box.firstElementChild.textContent);
  const add = (parent, tag, values = {}) => Object.assign(parent.appendChild(document.createElement(tag)), values);
  const inputs = controls.map(({ label, values, first, slider }) => {
    const line = add(box, "label");
    add(line, "span", { textContent: label });
    const input = add(line, slider ? "input" : "select", slider ? { type: "range", min: 0, max: values.length - 1 } : {});
    if (!slider) values.forEach((value, n) => add(input, "option", { value: n, textContent: value }));
    const shown = add(line, "output");
    input.value = first;
    input.addEventListener("input", draw);
    return { input, show: () => (shown.textContent = slider ? values[input.value] : "") };
  });
  const image = add(box, "img", { alt: "the layer with what the method adds", hidden: true });
  const picture = add(box, "div", { className: "bars" }), note = add(box, "p");

  function draw() {
    inputs.forEach(({ show }) => show());
    const { bars, line, note: words, picture: drawn } = states[inputs.map(({ input }) => input.value).join()];
    if (drawn) Object.assign(image, { src: drawn, hidden: false });
    picture.replaceChildren();
    bars.forEach(([label, start, width, text], n) => {
      add(picture, "div", { textContent: label });
      const track = add(picture, "div", { className: "track" });
      add(track, "div", { className: `bar bar-${n % 8}` }).style.cssText = `left: ${start}%; width: ${width}%`;
      if (line !== null) add(track, "div", { className: "line" }).style.left = `${line}%`;
      add(picture, "small", { textContent: text });
    });
    note.textContent = words;
  }
  draw();
}
