"use strict";
/* Draws the charts that the page's JSON describes, and lets its tables be sorted. */
(function () {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

  /* As profile_report.py says sizes and numbers: powers of 1000, three digits, no exponent. */
  function scaled(value, units) {
    let step = 0;
    while (value >= 999.5 && step < units.length - 1) {
      value /= 1000;
      step += 1;
    }
    return short.format(value) + (units[step] ? " " + units[step] : "");
  }
  const words = {
    "bytes": (value) => scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"]),
    "bytes/s": (value) => scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"]) + "/s",
    "offsets/s": (value) => scaled(value, ["", "k", "M", "G", "T"]) + " offsets/s",
    "%": (value) => short.format(value) + " %",
  };

  Chart.defaults.animation = false;
  Chart.defaults.color = colour("--soft");
  Chart.defaults.borderColor = colour("--line");
  Chart.defaults.font.family = "system-ui, sans-serif";
  Chart.defaults.font.size = 11;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  for (const each of charts) {
    const say = words[each.unit];
    new Chart(document.getElementById(each.id), {
      type: "bar",
      data: {
        labels: each.labels,
        datasets: [{
          data: each.values,
          backgroundColor: colour("--bar"),
          hoverBackgroundColor: colour("--ink"),
          categoryPercentage: 1,
          barPercentage: 0.92,
          minBarLength: 1,
        }],
      },
      options: {
        maintainAspectRatio: false,
        interaction: { mode: "index", intersect: false },
        plugins: {
          legend: { display: false },
          tooltip: { displayColors: false, callbacks: { label: (at) => say(at.parsed.y) } },
        },
        scales: {
          x: {
            grid: { display: false },
            ticks: { autoSkip: true, maxTicksLimit: each.ticks, maxRotation: 0 },
          },
          y: { beginAtZero: true, ticks: { maxTicksLimit: 4, callback: say } },
        },
      },
    });
  }
  for (const table of document.querySelectorAll("table.sortable")) {
    /* Numbers begin with the greatest; names, whose heads say data-sort-reverse, with a. */
    new Tablesort(table, { descending: true });
  }
})();
