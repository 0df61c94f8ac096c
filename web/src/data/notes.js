// What must be said before a number that rests on labels or marks is believed.

/** Sentences about labels that name no class, and about marks of another class. */
export function notesOf({ all, good, sure }, stale) {
  const found = []
  if (all && !good)
    found.push(`Labels are not counted: none of ${all} names a class of the model, by name or by number.`)
  else if (all > good && sure)
    found.push(`Of ${plural(all, 'label')} ${all - good} name no class of the model; those rows count as wrong.`)
  if (stale)
    found.push(`${plural(stale, 'mark')} of an earlier judgement not counted: these rows have another class now. Mark them again.`)
  return found
}

const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`
