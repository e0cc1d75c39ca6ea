// What the API's signatures name and is defined elsewhere, so that a test needs two imports: `NephosKit` and
// `NephosTestKit`.

@_exported public import class TestKit.FaultPlan
@_exported public import struct TestKit.FaultPoint
