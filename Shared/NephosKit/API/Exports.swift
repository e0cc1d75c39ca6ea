// What the API's signatures name and is defined elsewhere, so that an app needs one import, `import NephosKit`. Only
// these: the modules themselves hold what no app has to see.

@_exported public import struct Bus.Budget
@_exported public import struct Core.AccountID
@_exported public import struct Core.AppID
@_exported public import protocol Core.ByteName
@_exported public import struct Core.ChangeToken
@_exported public import struct Core.CloudError
@_exported public import struct Core.ConnectionString
@_exported public import struct Core.DeviceID
@_exported public import struct Core.HybridTimestamp
@_exported public import protocol Core.Identifier
@_exported public import struct Core.ItemName
@_exported public import struct Core.KeyValueLimits
@_exported public import struct Core.OperationID
@_exported public import enum Core.PropertyValue
@_exported public import struct Core.PublicKey
@_exported public import struct Core.ServiceName
@_exported public import struct Core.SetDigest
@_exported public import struct Core.StoreID
@_exported public import struct Core.Timestamp
@_exported public import struct FoundationEssentials.Data
@_exported public import struct FoundationEssentials.Date
@_exported public import struct Wire.KeyValueItem
