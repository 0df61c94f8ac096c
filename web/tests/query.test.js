import assert from 'node:assert/strict'
import test from 'node:test'
import { numbers, words } from '../src/data/columns.js'
import { parse, testOf } from '../src/data/query.js'

const columns = {
  trust: numbers([0.1, 0.5, null]),
  predicted: words(['Bag', 'Ankle boot', 'bag 2']),
  label: words(['Bag', null, 'coat']),
  id: words(['7', 'b', '2']),
  'Größe (cm)': numbers([10, 20, 30]),
}
const kinds = Object.fromEntries(Object.entries(columns).map(([name, { kind }]) => [name, kind]))

function rows(text, given = columns) {
  const tests = parse(text, kinds).map((part) => testOf(part, given))
  return [0, 1, 2].filter((row) => tests.every((one) => one(row)))
}

test('numbers, words and quotes', () => {
  assert.deepEqual(rows(''), [0, 1, 2])
  assert.deepEqual(rows('trust<0.5'), [0])
  assert.deepEqual(rows('trust>=0.1 trust <= 0.5'), [0, 1])
  assert.deepEqual(rows('predicted=bag'), [0])
  assert.deepEqual(rows('predicted!=bag'), [1, 2])
  assert.deepEqual(rows('predicted="ankle boot"'), [1])
  assert.deepEqual(rows('boot'), [1])
})

test('a bare whole number is a row or an id, never a part of a word', () => {
  assert.deepEqual(rows('1'), [1])
  assert.deepEqual(rows('7'), [0])
  assert.deepEqual(rows('2'), [2])
  assert.deepEqual(rows('"2"'), [2])
  assert.deepEqual(rows('20', { ...columns, id: numbers([20, 21, 22]) }), [0])
})

test('names of columns may hold spaces and any letter', () => {
  assert.deepEqual(rows('"Größe (cm)">=20'), [1, 2])
  assert.match(parse('Größe<1', kinds)[0].error, /no column Größe/)
})

test('missing values are equal to nothing and differ from nothing; ="" finds them', () => {
  assert.deepEqual(rows('label!=bag'), [2])
  assert.deepEqual(rows('trust!=0.1'), [1])
  assert.deepEqual(rows('label=""'), [1])
  assert.deepEqual(rows('label!=""'), [0, 2])
  assert.deepEqual(rows('trust=""'), [2])
  assert.deepEqual(rows('trust!=""'), [0, 1])
})

test('errors name the part', () => {
  assert.match(parse('nothing=1', kinds)[0].error, /no column nothing/)
  assert.match(parse('trust<much', kinds)[0].error, /number, not “much”/)
  assert.match(parse('predicted<3', kinds)[0].error, /use predicted=word/)
  for (const name of ['toString', 'constructor', '__proto__'])
    assert.match(parse(`${name}<1`, kinds)[0].error, /no column/)
})
