/** From data to pixels. */
function scale(from, to, start, end) {
  const width = to - from || 1;
  return (value) => start + ((value - from) / width) * (end - start);
}

/** Round numbers between two values, about so many of them. */
function ticks(from, to, about) {
  const raw = (to - from) / about || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at++) found.push(at * step || 0);
  return found;
}

function rounded(value, places) {
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places }).replace("-", "−");
}

/** As few decimals as tell neighbours apart. */
function tickText(value, values) {
  const step = values.length > 1 ? values[1] - values[0] : 1;
  const places = [0, 1, 2, 3].find((count) => Math.abs(step - Number(step.toFixed(count))) < step / 1000);
  return rounded(value, places ?? 3);
}

/** Hours as people say them. */
function hourText(hours) {
  if (hours < 48) return `${rounded(hours, hours < 10 ? 1 : 0)} h`;
  return `day ${Math.floor(hours / 24) + 1}, ${rounded(hours % 24, 0)} h`;
}
