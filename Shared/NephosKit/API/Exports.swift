// What the API's signatures name and is defined elsewhere, so that an app needs one import, `import NephosKit`. Only
// these: the modules themselves hold what no app has to see.

@_exported public import struct FoundationEssentials.Data
@_exported public import struct FoundationEssentials.Date
@_exported public import struct FoundationEssentials.URL
@_exported public import struct NephosBus.Budget
@_exported public import struct NephosCore.AccountID
@_exported public import struct NephosCore.AppID
@_exported public import protocol NephosCore.ByteName
@_exported public import struct NephosCore.ChangeToken
@_exported public import struct NephosCore.CloudError
@_exported public import struct NephosCore.ConnectionString
@_exported public import struct NephosCore.ContainerClass
@_exported public import struct NephosCore.DeviceID
@_exported public import struct NephosCore.DocumentID
@_exported public import struct NephosCore.HybridTimestamp
@_exported public import protocol NephosCore.Identifier
@_exported public import struct NephosCore.ItemName
@_exported public import struct NephosCore.KeyValueLimits
@_exported public import struct NephosCore.OperationID
@_exported public import enum NephosCore.PropertyValue
@_exported public import struct NephosCore.PublicKey
@_exported public import struct NephosCore.ServiceName
@_exported public import struct NephosCore.SetDigest
@_exported public import struct NephosCore.StoreID
@_exported public import struct NephosCore.Timestamp
@_exported public import struct NephosPredicates.FieldName
@_exported public import struct NephosPredicates.Folding
@_exported public import struct NephosPredicates.PredicateComparison
@_exported public import struct NephosPredicates.PredicateDate
@_exported public import enum NephosPredicates.PredicateNode
@_exported public import enum NephosPredicates.PredicateRelation
@_exported public import enum NephosPredicates.PredicateValue
@_exported public import struct NephosPredicates.QueryPredicate
@_exported public import struct NephosPredicates.QueryPredicateError
@_exported public import struct NephosWire.KeyValueItem
