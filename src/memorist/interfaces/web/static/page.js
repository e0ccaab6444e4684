// Progressive enhancement: every page works without scripts.

for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    const choice = new FormData(form).get("how");
    if (choice !== "trash" && !window.confirm(form.dataset.confirm)) event.preventDefault();
  });
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

document.addEventListener("keydown", (event) => {
  const search = document.querySelector("input[type=search]");
  const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select");
  if (event.key === "/" && search && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
  }
});
