//! Scalars of JSON and YAML.

use serde_json::{Number, Value};

/// Visits scalars of JSON and YAML.
macro_rules! visit_scalars {
    () => {
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a value")
        }
        fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
            Ok(Value::Null)
        }
        fn visit_none<E: de::Error>(self) -> Result<Value, E> {
            Ok(Value::Null)
        }
        fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Value, E> {
            Ok(Value::Bool(flag))
        }
        fn visit_i64<E: de::Error>(self, integer: i64) -> Result<Value, E> {
            Ok(integer.into())
        }
        fn visit_u64<E: de::Error>(self, integer: u64) -> Result<Value, E> {
            Ok(i64::try_from(integer).map_or_else(|_| (integer as f64).into(), Value::from))
        }
        fn visit_f64<E: de::Error>(self, float: f64) -> Result<Value, E> {
            $crate::decode::scalar::number(float).ok_or_else(|| E::custom("number out of range"))
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
            Ok(text.into())
        }
        fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
            Ok(text.into())
        }
    };
}

/// Converts a float; whole ones that fit are integers.
pub(crate) fn number(float: f64) -> Option<Value> {
    // 2^63 is exact in f64; anything below it in magnitude converts exactly when whole.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float) {
        return Some((float as i64).into());
    }
    Number::from_f64(float).map(Value::Number)
}

pub(super) use visit_scalars;
