// Elements. Names of other people's programs go into text only: never into markup.

export const by = (id) => document.getElementById(id);

// An element with properties and children; strings become text.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("aria-") || key === "role" || key === "scope") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

// The chosen one of some buttons.
export function choose(group, attribute, value) {
  for (const button of group.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset[attribute] === value));
  }
}

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
