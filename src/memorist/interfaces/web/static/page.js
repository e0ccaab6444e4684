// Comfort only: everything on the page works without it.

for (const form of document.querySelectorAll("form[data-asks]")) {
  form.addEventListener("submit", (event) => {
    const chosen = new FormData(form).get("how");
    if (chosen !== "trash" && !window.confirm(form.dataset.asks)) event.preventDefault();
  });
}

for (const button of document.querySelectorAll("button[data-copies]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "Copied";
  });
}

document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  const writing = event.target instanceof Element && event.target.closest("input, textarea, select");
  if (event.key === "/" && field && !writing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});
