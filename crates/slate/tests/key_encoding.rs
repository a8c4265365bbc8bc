//! Key encoding: the order of bytes is the order of values, for every BSON type.

use std::cmp::Ordering;

use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, RawBson, Regex, Timestamp,
    oid::ObjectId, spec::BinarySubtype,
};
use proptest::prelude::*;
use slate::key::{compare, complement, decode, encode, prefix_successor, skip};

fn number() -> impl Strategy<Value = Bson> {
    let edge = prop_oneof![
        Just(i64::MIN),
        Just(i64::MIN + 1),
        Just(i64::MAX),
        Just(i64::MAX - 1),
        Just((1 << 53) + 1),
        Just(-(1 << 53) - 1),
        Just(0),
        Just(256),
        Just(-256),
    ];
    prop_oneof![
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        edge.prop_map(Bson::Int64),
        any::<f64>().prop_map(Bson::Double),
        (-300_i32..300).prop_map(Bson::Int32),
        (-300_i32..300).prop_map(|value| Bson::Double(f64::from(value) / 4.0)),
        (-1000_i64..1000).prop_map(|value| Bson::Double((i64::MAX - value.abs()) as f64)),
        Just(Bson::Double(f64::NAN)),
        Just(Bson::Double(-0.0)),
        Just(Bson::Double(f64::INFINITY)),
        Just(Bson::Double(f64::NEG_INFINITY)),
        (-1000_i32..1000).prop_map(|value| Bson::Decimal128(
            format!("{value}E-1").parse::<Decimal128>().expect("a decimal")
        )),
    ]
}

fn text() -> impl Strategy<Value = String> {
    // Zero bytes, the escape's bytes, and prefixes of each other.
    proptest::collection::vec(
        prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('\u{ff}'), any::<char>()],
        0..6,
    )
    .prop_map(|characters| characters.into_iter().collect())
}

fn scalar() -> impl Strategy<Value = Bson> {
    prop_oneof![
        4 => number(),
        3 => text().prop_map(Bson::String),
        1 => text().prop_map(Bson::Symbol),
        1 => any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        1 => any::<bool>().prop_map(Bson::Boolean),
        1 => any::<i64>().prop_map(|millis| Bson::DateTime(DateTime::from_millis(millis))),
        1 => (any::<u32>(), any::<u32>())
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        1 => (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..5))
            // Subtype 2 has a second length inside.
            .prop_filter("old binary", |(subtype, _)| *subtype != 2)
            .prop_map(|(subtype, bytes)| Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes })),
        1 => ("[a-c]{0,3}", "[im]{0,1}").prop_map(|(pattern, options)| {
            Bson::RegularExpression(Regex {
                pattern: pattern.try_into().expect("no zero"),
                options: options.try_into().expect("no zero"),
            })
        }),
        1 => text().prop_map(Bson::JavaScriptCode),
        1 => prop_oneof![Just(Bson::Null), Just(Bson::Undefined), Just(Bson::MinKey), Just(Bson::MaxKey)],
    ]
}

fn value() -> impl Strategy<Value = Bson> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        let document = proptest::collection::vec(("[a-c]{1,2}", inner.clone()), 0..4)
            .prop_map(|fields| fields.into_iter().collect::<Document>());
        prop_oneof![
            document.clone().prop_map(Bson::Document),
            proptest::collection::vec(inner, 0..4).prop_map(Bson::Array),
            (text(), document).prop_map(|(code, scope)| Bson::JavaScriptCodeWithScope(
                JavaScriptCodeWithScope { code, scope }
            )),
        ]
    })
}

fn raw(value: &Bson) -> RawBson {
    RawBson::try_from(value.clone()).expect("valid BSON")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn order_of_keys_is_order_of_values(left in value(), right in value()) {
        let (left, right) = (raw(&left), raw(&right));
        let (left, right) = (left.as_raw_bson_ref(), right.as_raw_bson_ref());
        prop_assert_eq!(encode(left).cmp(&encode(right)), compare(left, right));
    }

    #[test]
    fn numbers_of_all_types_share_one_order(left in number(), right in number()) {
        let (left, right) = (raw(&left), raw(&right));
        let (left, right) = (left.as_raw_bson_ref(), right.as_raw_bson_ref());
        prop_assert_eq!(encode(left).cmp(&encode(right)), compare(left, right));
    }

    #[test]
    fn decoded_key_compares_equal_and_consumes_exactly_itself(first in value(), second in value()) {
        let (first, second) = (raw(&first), raw(&second));
        let mut bytes = encode(first.as_raw_bson_ref());
        let tail = encode(second.as_raw_bson_ref());
        bytes.extend_from_slice(&tail);
        let (decoded, rest) = decode(&bytes).expect("decodes");
        prop_assert_eq!(rest, tail.as_slice());
        prop_assert_eq!(compare(raw(&decoded).as_raw_bson_ref(), first.as_raw_bson_ref()), Ordering::Equal);
        prop_assert_eq!(skip(&bytes, false).expect("skips"), tail.as_slice());
    }

    #[test]
    fn complemented_keys_reverse_the_order_and_skip(left in value(), right in value()) {
        let (left, right) = (raw(&left), raw(&right));
        let order = compare(left.as_raw_bson_ref(), right.as_raw_bson_ref());
        let descending = |value: &RawBson| {
            let mut bytes = encode(value.as_raw_bson_ref());
            complement(&mut bytes);
            bytes
        };
        let (left, right) = (descending(&left), descending(&right));
        prop_assert_eq!(left.cmp(&right), order.reverse());
        let both = [left.as_slice(), &right].concat();
        prop_assert_eq!(skip(&both, true).expect("skips"), right.as_slice());
    }

    #[test]
    fn no_key_is_a_prefix_of_another(left in value(), right in value()) {
        let (left, right) = (encode(raw(&left).as_raw_bson_ref()), encode(raw(&right).as_raw_bson_ref()));
        prop_assert!(left == right || !right.starts_with(&left));
    }

    #[test]
    fn prefix_successor_bounds_exactly_the_prefixed(prefix in proptest::collection::vec(any::<u8>(), 0..4),
                                                    other in proptest::collection::vec(any::<u8>(), 0..6)) {
        let within = other >= prefix && prefix_successor(&prefix).is_none_or(|end| other < end);
        prop_assert_eq!(within, other.starts_with(&prefix));
    }

    #[test]
    fn damaged_keys_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode(&bytes);
        let _ = skip(&bytes, false);
        let _ = skip(&bytes, true);
    }
}
