// Rows as the text of a CSV file (RFC 4180), in parts so that a million rows need no single text.

export function cell(value) {
  if (value === null || value === undefined) return ''
  // a spreadsheet would calculate what begins so: as a word it gets an apostrophe in front
  const text = typeof value === 'string' && /^[=+\-@\t\r]/u.test(value) ? `'${value}` : String(value)
  return /[",\r\n]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** Parts of the text; `read(name, row)` gives a value. */
export function csvParts(names, rows, read) {
  const parts = [names.map(cell).join(',') + '\r\n']
  for (let first = 0; first < rows.length; first += 10000) {
    let text = ''
    for (const row of rows.subarray(first, first + 10000))
      text += names.map((name) => cell(read(name, row))).join(',') + '\r\n'
    parts.push(text)
  }
  return parts
}
