//! Cost models of functions, for estimates and actual costs.
//!
//! [`Rule::of`] names the rule of an overload when the program is compiled; [`Rule::charge`] applies it to values,
//! [`Rule::estimate`] to size ranges. Estimated and actual costs differ where they do in cel-go.

use super::{CHECK, CostEstimate, NEW_LIST, NEW_MESSAGE, PER_CHAR, PER_REGEX_CHAR, SizeEstimate, scale};
use crate::schema::Schema;
use crate::types::Type;
use crate::value::{Map, Value};

/// Cost model of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// One unit.
    Unit,
    /// An authorization check.
    Check,
    /// The parse of a field or label selector.
    Selector,
    /// A walk over a whole collection, its strings included; `includes` takes what is no list, too.
    Traversal {
        includes: bool,
    },
    /// One pass over the first argument; the result is as long where `sized`.
    Scan {
        sized: bool,
    },
    /// Two passes over the first argument.
    ScanTwice,
    Replace,
    Split,
    Join,
    /// A regular expression (second argument) on a text (first); `find` yields parts of the text.
    Regex {
        find: bool,
    },
    /// A pass over the second argument: `startsWith`, `endsWith`.
    Affix,
    /// A search for the second argument in the first.
    Contains,
    StringToBytes,
    BytesToString,
    Quote,
    Format,
    ContainsIp {
        parses: bool,
    },
    ContainsCidr {
        parses: bool,
    },
    /// A named format on a string.
    Validate,
    /// Every element of one list against every element of another, so many times.
    Sets {
        times: u8,
    },
    Slice,
    Flatten,
    Range,
    Reverse,
    /// Every element against every other; `text` for elements that are strings or bytes.
    SelfCompare {
        text: bool,
    },
    /// Operators on strings, bytes and collections.
    Concatenate,
    AppendList,
    CompareText,
    Equality,
    InList,
    Conditional,
}

/// An argument as the estimator knows it.
#[derive(Debug)]
pub(crate) struct Argument<'t> {
    pub(crate) ty: &'t Type,
    pub(crate) size: Option<SizeEstimate>,
    pub(crate) schema: Option<&'t Schema>,
    /// The value of an integer literal.
    pub(crate) literal: Option<i64>,
}

impl Argument<'_> {
    fn size(&self) -> SizeEstimate {
        self.size.unwrap_or(SizeEstimate::UNKNOWN)
    }

    /// Type and size of the elements of a list. Kubernetes takes a map for a list of its keys, as large as its values.
    fn elements(&self) -> Option<(Type, SizeEstimate)> {
        let (Type::List(item) | Type::Map(item, _)) = self.ty else { return None };
        let known = self.schema.and_then(Schema::elements);
        let size =
            known.map_or(SizeEstimate::UNKNOWN, |schema| SizeEstimate { min: 0, max: schema.max_elements() });
        Some((Type::clone(item), size))
    }
}

impl Rule {
    /// The rule of an overload.
    pub(crate) fn of(function: &str, overload: &str) -> Self {
        match function {
            "check" => Self::Check,
            "fieldSelector" | "labelSelector" => Self::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                Self::Traversal { includes: false }
            }
            "includes" => Self::Traversal { includes: true },
            "url" | "jsonpatch.escapeKey" | "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                Self::Scan { sized: true }
            }
            "ip" if overload == "cidr_ip" => Self::Unit,
            "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                Self::Scan { sized: false }
            }
            "ip.isCanonical" => Self::ScanTwice,
            "replace" => Self::Replace,
            "split" => Self::Split,
            "join" => Self::Join,
            "find" | "findAll" => Self::Regex { find: true },
            "matches" => Self::Regex { find: false },
            "startsWith" | "endsWith" => Self::Affix,
            "contains" => Self::Contains,
            "containsIP" => Self::ContainsIp { parses: overload == "cidr_contains_ip_string" },
            "containsCIDR" => Self::ContainsCidr { parses: overload == "cidr_contains_cidr_string" },
            "validate" => Self::Validate,
            "sets.contains" | "sets.intersects" => Self::Sets { times: 1 },
            "sets.equivalent" => Self::Sets { times: 2 },
            "slice" => Self::Slice,
            "flatten" => Self::Flatten,
            "lists.range" => Self::Range,
            "reverse" if overload == "list_reverse" => Self::Reverse,
            "distinct" => Self::SelfCompare { text: false },
            "sort" => Self::SelfCompare { text: matches!(overload, "list_string_sort" | "list_bytes_sort") },
            _ => Self::of_overload(overload),
        }
    }

    fn of_overload(overload: &str) -> Self {
        match overload {
            "string_to_bytes" => Self::StringToBytes,
            "bytes_to_string" => Self::BytesToString,
            "strings_quote" => Self::Quote,
            "string_format" => Self::Format,
            "add_string" | "add_bytes" => Self::Concatenate,
            "add_list" => Self::AppendList,
            "less_string"
            | "less_equals_string"
            | "greater_string"
            | "greater_equals_string"
            | "less_bytes"
            | "less_equals_bytes"
            | "greater_bytes"
            | "greater_equals_bytes" => Self::CompareText,
            "equals" => Self::Equality,
            // Kubernetes defines the cost of equality only for its own types.
            "not_equals" => Self::CompareText,
            "in_list" => Self::InList,
            "conditional" => Self::Conditional,
            _ => Self::Unit,
        }
    }

    /// Returns the actual cost of a call, given its arguments and its result.
    pub(crate) fn charge(self, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
        let size = |index: usize| args.get(index).map_or(1, Value::cost_size);
        let result_size = || result.map_or(1, Value::cost_size);
        match self {
            Self::Unit | Self::AppendList | Self::Conditional => 1,
            Self::Check => CHECK,
            Self::Selector => selector(SizeEstimate::fixed(size(1))).max,
            Self::Traversal { .. } => args.first().map_or(0, traversal),
            Self::Scan { .. } | Self::StringToBytes | Self::BytesToString | Self::Quote | Self::Format => {
                scale(size(0), PER_CHAR)
            }
            Self::ScanTwice | Self::Replace | Self::Split => scale(size(0), 2.0 * PER_CHAR),
            Self::Join => scale(result_size(), 2.0 * PER_CHAR),
            Self::Regex { .. } => {
                scale(size(0).saturating_add(1), PER_CHAR).saturating_mul(scale(size(1), PER_REGEX_CHAR))
            }
            Self::Affix => scale(size(1), PER_CHAR),
            Self::Contains => scale(size(0), PER_CHAR).saturating_mul(scale(size(1), PER_CHAR)),
            Self::ContainsIp { parses } => {
                scale(2 * size(0), PER_CHAR) + if parses { scale(size(1), PER_CHAR) } else { 0 }
            }
            Self::ContainsCidr { parses } => {
                let compared = scale(2 * size(0), PER_CHAR) + scale(size(0), PER_CHAR) + 1;
                compared + if parses { scale(size(1), PER_CHAR) } else { 0 }
            }
            Self::Validate => {
                let pattern = args.first().map_or(0, Value::format_pattern_length);
                scale(size(1).saturating_add(1), PER_CHAR).saturating_mul(scale(pattern, PER_REGEX_CHAR))
            }
            Self::Sets { times } => {
                size(0).saturating_mul(size(1)).saturating_mul(u64::from(times)).saturating_add(1)
            }
            Self::Slice | Self::Range | Self::Reverse => result_size().saturating_add(1 + NEW_LIST),
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => u64::try_from(*depth).unwrap_or(0),
                    _ => 1,
                };
                depth.saturating_mul(size(0)).saturating_add(1 + NEW_LIST)
            }
            Self::SelfCompare { .. } => {
                // The actual values decide, not their static types.
                let list = args.last().or(args.first());
                let text = match list {
                    Some(Value::List(list)) => {
                        matches!(list.get(0), Some(Ok(Value::String(_) | Value::Bytes(_))))
                    }
                    _ => false,
                };
                let count = list.map_or(0, Value::cost_size);
                let factor = if text { 2.0 + PER_CHAR } else { 2.0 };
                ((count.saturating_mul(count) as f64 * factor) as u64).saturating_add(1 + NEW_LIST)
            }
            Self::Concatenate => scale(size(0).saturating_add(size(1)), PER_CHAR),
            Self::Equality if matches!(args.first(), Some(Value::Opaque(_))) => 1,
            Self::CompareText | Self::Equality => scale(size(0).min(size(1)), PER_CHAR),
            Self::InList => size(1),
        }
    }

    /// Estimates the cost of a call without its arguments, and the size of its result.
    pub(crate) fn estimate(self, args: &[Argument<'_>]) -> (CostEstimate, Option<SizeEstimate>) {
        let size = |index: usize| args.get(index).map_or(SizeEstimate::UNKNOWN, Argument::size);
        let written = |index: usize| args.get(index).and_then(|arg| arg.literal);
        let literal = |index: usize| written(index).map(|number| u64::try_from(number).unwrap_or(0));
        let one = CostEstimate::fixed(1);
        match self {
            Self::Unit => (one, None),
            Self::Check => (CostEstimate::fixed(CHECK), None),
            Self::Selector => (selector(size(1)), None),
            Self::Traversal { includes } => match args.first().and_then(Argument::elements) {
                Some((Type::String | Type::Bytes, item)) => {
                    (size(0).times(one.plus(item.scaled(PER_CHAR))), None)
                }
                Some(_) => (size(0).times(one), None),
                None if includes => (size(0).times(one), None),
                None => (size(0).scaled(PER_CHAR), None),
            },
            Self::Scan { sized } => (size(0).scaled(PER_CHAR), sized.then(|| size(0))),
            Self::ScanTwice => (size(0).scaled(2.0 * PER_CHAR), None),
            Self::Replace => (size(0).scaled(2.0 * PER_CHAR), Some(replaced(size(0), size(1), size(2)))),
            Self::Split => {
                // A negative limit is none, which Kubernetes takes for the largest of all.
                let max = written(2).map_or(size(0).max, |limit| limit as u64);
                (size(0).scaled(2.0 * PER_CHAR), Some(SizeEstimate { min: 0, max }))
            }
            Self::Join => {
                let list = size(0);
                let items = args.first().and_then(Argument::elements);
                let texts = items.map_or(SizeEstimate::ZERO, |(_, item)| list.times(item));
                let separators =
                    SizeEstimate { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                let joined = if args.len() > 1 { texts.plus(size(1).times(separators)) } else { texts };
                (joined.scaled(PER_CHAR), Some(joined))
            }
            Self::Regex { find } => {
                let text = size(0).plus(SizeEstimate::fixed(1)).scaled(PER_CHAR);
                let cost = text.times(size(1).scaled(PER_REGEX_CHAR));
                (cost, find.then(|| SizeEstimate { min: 0, max: size(0).max }))
            }
            Self::Affix => (size(1).scaled(PER_CHAR), None),
            Self::Contains => (size(0).scaled(PER_CHAR).times(size(1).scaled(PER_CHAR)), None),
            Self::StringToBytes => {
                let text = size(0);
                let bytes = SizeEstimate { min: text.min, max: text.max.saturating_mul(4) };
                (text.scaled(PER_CHAR), Some(bytes))
            }
            Self::BytesToString => {
                let bytes = size(0);
                (bytes.scaled(PER_CHAR), Some(SizeEstimate { min: bytes.min / 4, max: bytes.max }))
            }
            Self::Quote => {
                let text = size(0);
                let max = text.max.saturating_mul(2).saturating_add(2);
                (text.scaled(PER_CHAR), Some(SizeEstimate { min: text.min.saturating_add(2), max }))
            }
            Self::Format => (size(0).scaled(PER_CHAR), None),
            Self::ContainsIp { parses } | Self::ContainsCidr { parses } => {
                // Addresses have four or sixteen bytes.
                let address = SizeEstimate { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(PER_CHAR);
                if matches!(self, Self::ContainsCidr { .. }) {
                    cost = cost.plus(address.scaled(PER_CHAR)).plus(one);
                }
                (if parses { cost.plus(size(1).scaled(PER_CHAR)) } else { cost }, None)
            }
            Self::Validate => {
                let longest_pattern = 128.0;
                (size(1).scaled(PER_CHAR).scaled(longest_pattern * PER_REGEX_CHAR), None)
            }
            Self::Sets { times } => (size(0).times(size(1)).scaled(f64::from(times)).plus(one), None),
            Self::Slice => {
                let end = literal(2).unwrap_or(size(0).max);
                // An end before its start wraps, as in Kubernetes, and is refused for its cost.
                allocating(1.0, SizeEstimate::fixed(end.wrapping_sub(literal(1).unwrap_or(0))))
            }
            Self::Range => allocating(1.0, SizeEstimate::fixed(literal(0).unwrap_or(u64::MAX))),
            Self::Reverse => allocating(1.0, size(0)),
            Self::Flatten => {
                let depth = if args.len() > 1 { literal(1).unwrap_or(u64::MAX) } else { 1 };
                allocating(depth as f64, size(0))
            }
            Self::SelfCompare { text } => {
                let list = args.last().map_or(SizeEstimate::UNKNOWN, Argument::size);
                allocating(if text { 2.0 + PER_CHAR } else { 2.0 }, list.times(list))
            }
            Self::Concatenate => {
                let sum = size(0).plus(size(1));
                (sum.scaled(PER_CHAR), Some(sum))
            }
            Self::AppendList => (one, Some(size(0).plus(size(1)))),
            Self::CompareText | Self::Equality => {
                let own = own_equality(args).filter(|_| self == Self::Equality);
                let max = size(0).max.min(size(1).max);
                (own.unwrap_or_else(|| CostEstimate { min: u64::from(max > 0), max }.scaled(PER_CHAR)), None)
            }
            Self::InList => (size(1), None),
            Self::Conditional => (CostEstimate::ZERO, Some(size(1).union(size(2)))),
        }
    }
}

/// Estimates the equality of two values of a Kubernetes type: 1 for most, the length of the name for formats, the
/// length of the right operand's text for URLs.
fn own_equality(args: &[Argument<'_>]) -> Option<CostEstimate> {
    const FORMAT_NAME_MAX: u64 = 64;
    let [one, other] = args else { return None };
    let Type::Opaque(name) = one.ty else { return None };
    let max = match *name {
        _ if one.ty != other.ty => return None,
        "kubernetes.NamedFormat" => FORMAT_NAME_MAX,
        "kubernetes.URL" => other.size.map_or(1, |size| size.max),
        _ => 1,
    };
    Some(CostEstimate { min: 1, max }.scaled(PER_CHAR))
}

fn allocating(factor: f64, list: SizeEstimate) -> (CostEstimate, Option<SizeEstimate>) {
    (list.scaled(factor).plus(CostEstimate::fixed(1 + NEW_LIST)), Some(list))
}

/// A selector is a list of requirements; the shortest requirement has two characters.
fn selector(length: SizeEstimate) -> CostEstimate {
    let requirements = length.scaled(0.5).scaled((NEW_LIST + NEW_MESSAGE) as f64);
    CostEstimate::fixed(NEW_LIST).plus(length.scaled(PER_CHAR)).plus(requirements)
}

/// The length of `text` with `old` replaced by `new`.
fn replaced(text: SizeEstimate, old: SizeEstimate, new: SizeEstimate) -> SizeEstimate {
    let (most, kept_most) = if old.min == 0 {
        // Replacing nothing puts the new text around every character.
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (text.max.div_ceil(old.min), 0)
    };
    let (fewest, kept_fewest) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (text.min.div_ceil(old.max), 0)
    };
    let count = SizeEstimate { min: fewest, max: most };
    count.times(new).plus(SizeEstimate { min: kept_fewest, max: kept_most })
}

/// One unit for each scalar, a tenth per byte of text, nothing for the collections themselves.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * PER_CHAR) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * PER_CHAR) as u64,
        Value::List(list) => list.iter().flatten().map(|item| traversal(&item)).fold(0, u64::saturating_add),
        Value::Map(map) => map_traversal(map),
        _ => 1,
    }
}

fn map_traversal(map: &Map<'_>) -> u64 {
    let entries = map.entries().unwrap_or_default();
    let cost = entries.iter().map(|(key, value)| traversal(&key.to_value()).saturating_add(traversal(value)));
    cost.fold(0, u64::saturating_add)
}
