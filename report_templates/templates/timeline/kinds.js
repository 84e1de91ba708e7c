// Sizes, fonts, and the colors and words of the kinds of events.
const LANE = 17, PAD = 3, LINE = 34, HEAD = 24, RULER = 26, MARKS = 16, NEAR = 5, ENOUGH = 1;
const FAMILIES = `"Inter", "DejaVu Sans", system-ui, sans-serif`, FONT = `11px ${FAMILIES}`;
const COLORS = { computation: "computation", communication: "communication", memory: "memory", sync: "sync", launch: "host", host: "operator",
  annotation: "other", step: "idle", merged: "other" };
const WORDS = { computation: "computation", communication: "communication", memory: "memory operation", sync: "synchronization", launch: "launch call",
  host: "host operation", annotation: "annotation", step: "step", merged: "several short events, merged" };
const PLAIN = new Set(["step", "annotation", "merged"]);
const ON_DARK = new Set(["computation", "communication", "loading", "annotation", "merged"]);
