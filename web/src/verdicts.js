// The verdicts, each with a colour, a shape and a sign, so that they can be told apart without colour.

import shapes from './verdicts.json' with { type: 'json' }

export const VERDICTS = ['trust', 'doubtful', 'outlier', 'tampered', 'unusable']
export const ALARMS = ['outlier', 'tampered']

/** Shapes inside a square of 12 by 12; pages that are not built have them from the same file. */
export const SHAPES = shapes

/** The place of a verdict in VERDICTS; what is no verdict, or missing, is unusable. */
export function codeOf(name) {
  const place = VERDICTS.indexOf(name)
  return place < 0 ? VERDICTS.indexOf('unusable') : place
}
