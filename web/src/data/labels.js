// Labels may be names of classes, numbers that count the classes from 0, or true and false. Here
// they all become names, as `predicted` has them.
import { words } from './columns.js'

/** The classes that were told, if the rows are predicted as such; else those that were predicted. */
export function classesOf(told, predicted) {
  const names = predicted.names.filter(Boolean)
  const all = Boolean(told) && names.every((name) => told.includes(name))
  return { names: all ? told : names, all }
}

/**
 * The labels as a column of words. A label that names no class stays as it is; a negative number
 * is no label. Only where all classes are known can a number count them.
 */
export function labelsAsNames(label, { names: classes, all }) {
  const texts = label.kind === 'words' ? label : asWords(label)
  const named = byName(texts.names, classes)
  const counted = all ? byPlace(texts.names, classes) : null
  const found = label.kind === 'number' ? counted ?? named : some(named) ? named : counted ?? named
  return { kind: 'words', codes: texts.codes, names: found.map((name, code) => name ?? texts.names[code]) }
}

/** How many labels there are, how many of them name a class, and whether all classes are known. */
export function matching(label, classes) {
  const set = new Set(classes.names)
  const hits = label.names.map((name) => set.has(name))
  let [all, good] = [0, 0]
  for (const code of label.codes) {
    if (label.names[code] === '') continue
    all++
    if (hits[code]) good++
  }
  return { all, good, sure: classes.all }
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
