// Labels may be names of classes, numbers that count the classes from 0, or true and false. Here
// they all become names, as `predicted` has them.
import { words } from './columns.js'

/**
 * The labels as a column of words. A label that names no class stays as it is; a negative number
 * is no label. Without `classes` only the names that were predicted are known.
 */
export function labelsAsNames(label, classes, predicted) {
  const texts = label.kind === 'words' ? label : asWords(label)
  const known = classes ?? predicted.names.filter(Boolean)
  const named = byName(texts.names, known)
  const counted = classes ? byPlace(texts.names, classes) : null
  const found = label.kind === 'number' ? counted ?? named : some(named) ? named : counted ?? named
  return { kind: 'words', codes: texts.codes, names: found.map((name, code) => name ?? texts.names[code]) }
}

/** How many labels there are, and how many of them name a class. */
export function matching(label, known) {
  const set = new Set(known)
  const hits = label.names.map((name) => set.has(name))
  let [all, good] = [0, 0]
  for (const code of label.codes) {
    if (label.names[code] === '') continue
    all++
    if (hits[code]) good++
  }
  return { all, good }
}

function asWords({ values }) {
  return words(Array.from(values, (value) => (value >= 0 ? value : null)))
}

/** Each text as the class of this name; 1 and '1.0' are the same. */
function byName(texts, classes) {
  const known = new Set(classes)
  const numbers = new Map(classes.filter(isNumber).map((name) => [Number(name), name]))
  return texts.map((text) => (known.has(text) ? text : isNumber(text) ? numbers.get(Number(text)) : undefined))
}

/** Each text as the class with this number; null if one of them is none. */
function byPlace(texts, classes) {
  const places = texts.map((text) => TRUTHS.get(text) ?? (isNumber(text) ? Number(text) : -1))
  const found = places.map((place) => classes[place])
  return texts.every((text, code) => text === '' || found[code] !== undefined) ? found : null
}

const TRUTHS = new Map([['False', 0], ['True', 1]])
const isNumber = (text) => text !== '' && Number.isFinite(Number(text))
const some = (names) => names.some((name) => name !== undefined)
