import assert from 'node:assert/strict'
import test from 'node:test'
import { numbers, valueOf, words } from '../src/data/columns.js'
import { sweep, answeredAt, measure } from '../src/data/curves.js'
import { DIRECTED, turned, wayOf } from '../src/data/direction.js'
import { classesOf, labelsAsNames, matching } from '../src/data/labels.js'
import { notesOf } from '../src/data/notes.js'
import { orderOf } from '../src/data/order.js'
import { kindsOf } from '../src/data/schema.js'
import { codeOf, VERDICTS } from '../src/verdicts.js'

const CLASSES = ['coat', 'bag', 'boot']

const ALL = { names: CLASSES, all: true }

function named(label, classes = CLASSES, predicted = words(classes?.slice(0, 2) ?? ['coat', 'bag'])) {
  const found = labelsAsNames(label, classesOf(classes, predicted))
  return Array.from(found.codes, (_, row) => valueOf(found, row))
}

test('labels become names of classes, whatever the file holds', () => {
  assert.deepEqual(named(numbers([2, 0, null, -1])), ['boot', 'coat', null, null])
  assert.deepEqual(named(words(['boot', 'bag', null])), ['boot', 'bag', null])
  assert.deepEqual(named(words(['2', '0'])), ['boot', 'coat'])
  assert.deepEqual(named(words([true, false]), ['no', 'yes']), ['yes', 'no'])
  assert.deepEqual(named(words([true, false]), ['True', 'False']), ['True', 'False'])
  assert.deepEqual(named(numbers([true, false]), ['False', 'True']), ['True', 'False'])
  assert.deepEqual(named(numbers([1, 2]), ['1', '2']), ['1', '2']) // 2 counts no class, so they are names
  assert.deepEqual(named(numbers([1, 0]), ['0.0', '1.0']), ['1.0', '0.0'])
})

test('labels that name no class stay as they are, and are counted', () => {
  assert.deepEqual(named(numbers([7, 0])), ['7', '0'])
  assert.deepEqual(named(words(['zebra', 'bag'])), ['zebra', 'bag'])
  assert.deepEqual(matching(words(['zebra', 'bag', null]), ALL), { all: 2, good: 1, sure: true })
  assert.deepEqual(matching(words(['7', '0']), ALL), { all: 2, good: 0, sure: true })
})

test('without the classes, labels are compared with what was predicted', () => {
  assert.deepEqual(named(numbers([1, 0]), null, words(['1.0', '0.0', ''])), ['1.0', '0.0'])
  assert.deepEqual(named(words([true, false]), null, words(['True', 'False'])), ['True', 'False'])
  assert.deepEqual(named(numbers([2, 0]), null), ['2', '0'])
  assert.deepEqual(named(numbers([1, 0]), CLASSES, words(['1.0', '0.0'])), ['1.0', '0.0']) // not these classes
})

test('what does not count is said', () => {
  assert.deepEqual(notesOf({ all: 0, good: 0 }), [])
  assert.deepEqual(notesOf({ all: 3, good: 3, sure: true }, 0), [])
  assert.match(notesOf({ all: 3, good: 0 })[0], /none of 3 names a class/)
  assert.match(notesOf({ all: 3, good: 2, sure: true })[0], /1 name no class/)
  assert.deepEqual(notesOf({ all: 3, good: 2, sure: false }), [])
  assert.match(notesOf({ all: 0, good: 0 }, 1)[0], /1 mark of an earlier judgement/)
})

test('a threshold on p_wrong answers the rows where it is low', () => {
  assert.equal(wayOf('p_wrong'), -1)
  assert.deepEqual(DIRECTED.filter((name) => wayOf(name) === 1), ['trust', 'p_ordinary', 'p_outlier', 'p_tampered'])
  const values = turned(Float64Array.of(0.9, 0.1, 0.5, NaN), wayOf('p_wrong'))
  const curve = sweep({ order: orderOf(values), values, mask: null, truth: Uint8Array.of(2, 1, 1, 0), alarm: new Uint8Array(4) })
  assert.equal(answeredAt(curve, -0.5), 2)
  assert.equal(measure(curve, 2).accuracy, 1)
  assert.equal(measure(curve, 3).accuracy, 2 / 3)
})

test('only the verdict trust is trusted', () => {
  for (const name of ['', 'mystery', null, undefined, 'toString']) assert.equal(VERDICTS[codeOf(name)], 'unusable')
  for (const name of VERDICTS) assert.equal(VERDICTS[codeOf(name)], name)
})

test('the schema: numbers, words, dates; no lists, no names of the page itself', () => {
  const schema = [
    { name: 'schema', num_children: 7 },
    { name: 'trust', type: 'DOUBLE' },
    { name: 'tags', num_children: 1 },
    { name: 'list', num_children: 1 },
    { name: 'element', type: 'INT64' },
    { name: 'when', type: 'INT64', logical_type: { type: 'TIMESTAMP' } },
    { name: 'day', type: 'INT32', converted_type: 'DATE' },
    { name: 'row', type: 'INT64' },
    { name: '__proto__', type: 'INT64' },
    { name: 'flag', type: 'BOOLEAN' },
  ]
  assert.deepEqual(Object.entries(kindsOf(schema)), [
    ['trust', 'number'], ['when', 'words'], ['day', 'words'], ['__proto__', 'number'], ['flag', 'words'],
  ])
})

test('dates and truths as words', () => {
  const column = words([new Date('2024-01-02'), new Date('2024-01-02T03:04:05Z'), true, false])
  assert.deepEqual(column.names, ['2024-01-02', '2024-01-02 03:04:05', 'True', 'False'])
})
