// What the theme leaves out for those who read by keyboard or by ear, and groups of the side bar that open and close.
const closeGroups = () => {
  const groups = [...document.querySelectorAll(".sidebar-tree p.caption")].map((caption) => [caption, caption.nextElementSibling]);
  const open = Math.max(0, groups.findIndex(([, list]) => list?.querySelector(".current")));
  groups.forEach(([caption, list], at) => {
    if (list?.tagName !== "UL") return;
    const button = document.createElement("button");
    const show = (expanded) => {
      button.setAttribute("aria-expanded", expanded);
      list.hidden = !expanded;
    };
    button.type = "button";
    button.append(...caption.childNodes);
    button.addEventListener("click", () => show(list.hidden));
    caption.append(button);
    show(at === open);
  });
};
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
  closeGroups();
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
});
