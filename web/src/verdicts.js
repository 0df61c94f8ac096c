// The verdicts, each with a colour, a shape and a sign, so that they can be told apart without colour.

import shapes from './verdicts.json'

export const VERDICTS = ['trust', 'doubtful', 'outlier', 'tampered', 'unusable']
export const ALARMS = ['outlier', 'tampered']

/** Shapes inside a square of 12 by 12; pages that are not built have them from the same file. */
export const SHAPES = shapes
