// What the theme leaves out for those who read by keyboard or by ear.
addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.ariaLevel = 2;
  for (const parameters of document.querySelectorAll("dt.sig dl")) {
    parameters.role = "list"; // whose items describe no term
    for (const item of parameters.children) item.role = "listitem";
  }
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
});
