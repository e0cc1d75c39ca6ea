// What the API's signatures name and is defined elsewhere, so that a test needs two imports: `NephosKit` and
// `NephosTestKit`.

@_exported public import class NephosSimulation.FaultPlan
@_exported public import struct NephosSimulation.FaultPoint
