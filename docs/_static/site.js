// What the theme leaves out for those who read by keyboard or by ear.
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = 2;
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dd")) {
    const plain = document.createElement("div"); // parameters describe no term
    plain.role = part.matches("dl") ? "list" : "listitem";
    plain.append(...part.childNodes);
    part.replaceWith(plain);
  }
  if (!document.querySelector("h1")) { // the page of search results
    const heading = document.createElement("h1");
    heading.textContent = "Search";
    document.querySelector("article")?.prepend(heading);
  }
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
});
