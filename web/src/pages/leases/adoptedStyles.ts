// The terminal emulator writes its rules into <style> elements, which the page's Content-Security-Policy refuses: only
// style files of our own are applied. Rules that a script constructs are allowed, so its rules go into such sheets.

/** Does `work`, in which each `<style>` that is made is an element that puts its text into a constructed style sheet. */
export function withAdoptedStyles(work: () => void): void {
  const makeElement = document.createElement;
  document.createElement = ((name: string, options?: ElementCreationOptions) =>
    name === "style" ? sheetElement(makeElement.call(document, "template")) : makeElement.call(document, name, options)) as typeof document.createElement;
  try {
    work();
  } finally {
    Reflect.deleteProperty(document, "createElement"); // the one of the prototype holds again
  }
}

function sheetElement(element: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(element);
  };
  return Object.defineProperties(element, {
    textContent: { set: (text: string) => sheet.replaceSync(text) },
    remove: { value: remove },
  });
}
