// The verdicts, each with a colour, a shape and a sign, so that they can be told apart without colour.

export const VERDICTS = ['trust', 'doubtful', 'outlier', 'tampered', 'unusable']
export const ALARMS = ['outlier', 'tampered']

/** Shapes inside a square of 12 by 12. */
export const SHAPES = {
  trust: 'M6 1.6a4.4 4.4 0 1 0 0 8.8a4.4 4.4 0 1 0 0-8.8Z',
  doubtful: 'M1.9 1.9H10.1V10.1H1.9Z',
  outlier: 'M6 .9L11.3 10.6H.7Z',
  tampered: 'M2.6 .9L6 4.3L9.4 .9L11.1 2.6L7.7 6L11.1 9.4L9.4 11.1L6 7.7L2.6 11.1L.9 9.4L4.3 6L.9 2.6Z',
  unusable: 'M6 .5L11.5 6L6 11.5L.5 6ZM6 3.5L3.5 6L6 8.5L8.5 6Z',
}
