//! kro's own functions, and the environment that every expression starts from.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use md5::Digest as _;
use orlop_cel::{
    Env, EnvBuilder, EvalError, EvalResult, Key, Library, List, Map, MessageType, MessageValue, Text, Type,
    Value,
};
use serde_json::Value as Json;
use sha2::Digest as _;

use super::value::{OMIT, to_json};

/// Name of the type that `runtime.newCondition` returns.
pub(crate) const CONDITION: &str = "kro.Condition";
/// Fields of a condition.
pub(crate) const CONDITION_FIELDS: [&str; 4] = ["type", "status", "reason", "message"];

const LIBRARIES: &[Library] = &[
    Library::Strings { version: 4 },
    Library::Lists,
    Library::ListsExtension,
    Library::Sets,
    Library::Regex,
    Library::Urls,
    Library::Quantity,
    Library::Ip,
    Library::Cidr,
    Library::NamedFormats,
    Library::Semver,
    Library::Optionals,
    Library::TwoVariables,
    Library::Bindings,
    Library::Encoders,
    Library::Math,
];

/// Returns the environment with every function and no variable. Built once; extending it shares the functions.
pub(crate) fn environment() -> &'static Env {
    static ENVIRONMENT: OnceLock<Env> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let builder = LIBRARIES.iter().copied().fold(Env::builder(), EnvBuilder::library);
        let fields = CONDITION_FIELDS.map(|name| (name.to_owned(), Type::String)).into();
        let builder = builder.message(CONDITION, Some(fields));
        conditions(maps(lists(random(json(hashes(builder)))))).build()
    })
}

/// The type of conditions.
pub(crate) fn condition_type() -> Type {
    static CONDITION_TYPE: OnceLock<Arc<MessageType>> = OnceLock::new();
    let message = CONDITION_TYPE.get_or_init(|| {
        let fields = CONDITION_FIELDS.map(|name| (name.to_owned(), Type::String)).into();
        Arc::new(MessageType { name: CONDITION.to_owned(), fields: Some(fields) })
    });
    Type::Message(message.clone())
}

fn hashes(builder: EnvBuilder) -> EnvBuilder {
    let hash = |builder: EnvBuilder, name: &str, run: fn(&[u8]) -> Vec<u8>| {
        builder.function(name, false, vec![Type::String], Type::Bytes, move |args| match args {
            [Value::String(text)] => Ok(Value::bytes(run(text.as_bytes()))),
            _ => Err(no_such_overload()),
        })
    };
    let builder =
        hash(builder, "hash.fnv64a", |bytes| crate::definition::fnv1a64(bytes).to_be_bytes().to_vec());
    let builder = hash(builder, "hash.sha256", |bytes| sha2::Sha256::digest(bytes).to_vec());
    hash(builder, "hash.md5", |bytes| md5::Md5::digest(bytes).to_vec())
}

fn json(builder: EnvBuilder) -> EnvBuilder {
    let encode = |args: &[Value<'_>]| match args {
        [value] => {
            let json = to_json(value)?.unwrap_or(Json::Null);
            let text = serde_json::to_string(&json).unwrap_or_default();
            // Go escapes these for HTML.
            let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
            Ok(text)
        }
        _ => Err(no_such_overload()),
    };
    builder
        .function("json.unmarshal", false, vec![Type::String], Type::Dyn, |args| match args {
            [Value::String(text)] => match serde_json::from_str::<Json>(text) {
                Ok(json) => Ok(owned(&json)),
                Err(error) => Err(EvalError::failed(format!("json.unmarshal failed to parse JSON: {error}"))),
            },
            _ => Err(no_such_overload()),
        })
        .function("json.marshal", false, vec![Type::Dyn], Type::String, move |args| {
            encode(args).map(Value::string)
        })
        .function("json.encode", false, vec![Type::Dyn], Type::String, move |args| {
            encode(args).map(Value::string)
        })
}

/// JSON as a value of its own; every number is a double, as after Go's `json.Unmarshal`.
fn owned(json: &Json) -> Value<'static> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::string(text),
        Json::Array(items) => Value::list(items.iter().map(owned).collect()),
        Json::Object(entries) => {
            let entries =
                entries.iter().map(|(key, value)| (Key::String(Text::from(key.as_str())), owned(value)));
            Value::Map(Map::from(entries.collect::<BTreeMap<_, _>>()))
        }
    }
}

/// Longest string that `random.seededString` returns.
const SEEDED_STRING_MAX: i64 = 4096;

fn random(builder: EnvBuilder) -> EnvBuilder {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    builder
        .function(
            "random.seededString",
            false,
            vec![Type::Int, Type::String],
            Type::String,
            |args| match args {
                [Value::Int(length), _] if *length <= 0 => {
                    Err(EvalError::failed("random.seededString length must be positive"))
                }
                [Value::Int(length), _] if *length > SEEDED_STRING_MAX => Err(EvalError::failed(format!(
                    "random.seededString length must be at most {SEEDED_STRING_MAX}"
                ))),
                [Value::Int(length), Value::String(seed)] => {
                    let hash = sha2::Sha256::digest(seed.as_bytes());
                    let text = (0..*length as usize).map(|index| {
                        let at = index * 4 % 32;
                        let mut word = [0; 4];
                        word.copy_from_slice(&hash[at..at + 4]);
                        char::from(ALPHABET[u32::from_be_bytes(word) as usize % 36])
                    });
                    Ok(Value::string(text.collect::<String>()))
                }
                _ => Err(no_such_overload()),
            },
        )
        .function("random.seededInt", false, vec![Type::Int, Type::Int, Type::String], Type::Int, |args| {
            match args {
                [Value::Int(min), Value::Int(max), _] if min >= max => {
                    Err(EvalError::failed("random.seededInt min must be less than max"))
                }
                [Value::Int(min), Value::Int(max), Value::String(seed)] => {
                    let hash = sha2::Sha256::digest(seed.as_bytes());
                    let mut word = [0; 8];
                    word.copy_from_slice(&hash[..8]);
                    let span = (i128::from(*max) - i128::from(*min)) as u64;
                    let drawn = i128::from(*min) + i128::from(u64::from_be_bytes(word) % span);
                    Ok(Value::Int(drawn as i64))
                }
                _ => Err(no_such_overload()),
            }
        })
}

fn lists(builder: EnvBuilder) -> EnvBuilder {
    let list = || Type::list(Type::param("T"));
    builder
        .function("lists.setAtIndex", false, vec![list(), Type::Int, Type::param("T")], list(), |args| {
            match args {
                [Value::List(items), Value::Int(at), value] => {
                    edit("setAtIndex", items, *at, 0, |values, at| {
                        values[at] = value.clone();
                    })
                }
                _ => Err(no_such_overload()),
            }
        })
        .function("lists.insertAtIndex", false, vec![list(), Type::Int, Type::param("T")], list(), |args| {
            match args {
                [Value::List(items), Value::Int(at), value] => {
                    edit("insertAtIndex", items, *at, 1, |values, at| {
                        values.insert(at, value.clone());
                    })
                }
                _ => Err(no_such_overload()),
            }
        })
        .function("lists.removeAtIndex", false, vec![list(), Type::Int], list(), |args| match args {
            [Value::List(items), Value::Int(at)] => edit("removeAtIndex", items, *at, 0, |values, at| {
                values.remove(at);
            }),
            _ => Err(no_such_overload()),
        })
}

/// Edits a copy of a list at an index that is less than its length plus `beyond`.
fn edit<'a>(
    name: &str,
    list: &List<'a>,
    at: i64,
    beyond: usize,
    change: impl FnOnce(&mut Vec<Value<'a>>, usize),
) -> EvalResult<'a> {
    let mut values = list.to_values()?;
    let end = values.len() + beyond;
    let Some(at_index) = usize::try_from(at).ok().filter(|at| *at < end) else {
        let close = if beyond == 0 { ')' } else { ']' };
        return Err(EvalError::failed(format!(
            "lists.{name}: index {at} out of bounds [0, {}{close}",
            values.len()
        )));
    };
    change(&mut values, at_index);
    Ok(Value::list(values))
}

fn maps(builder: EnvBuilder) -> EnvBuilder {
    let map = || Type::map(Type::param("K"), Type::param("V"));
    builder
        .function("merge", true, vec![map(), map()], map(), |args| match args {
            [Value::Map(one), Value::Map(other)] => {
                let mut entries: BTreeMap<_, _> = one.entries()?.into_iter().collect();
                entries.extend(other.entries()?);
                Ok(Value::Map(Map::from(entries)))
            }
            _ => Err(no_such_overload()),
        })
        .function("deepMerge", true, vec![Type::Dyn, Type::Dyn], Type::Dyn, |args| match args {
            [one, other] => deep_merge(one, other),
            _ => Err(no_such_overload()),
        })
}

fn deep_merge<'a>(one: &Value<'a>, other: &Value<'a>) -> EvalResult<'a> {
    let (Value::Map(left), Value::Map(right)) = (one, other) else { return Ok(other.clone()) };
    let mut entries: BTreeMap<_, _> = left.entries()?.into_iter().collect();
    for (key, value) in right.entries()? {
        let merged = match entries.get(&key) {
            Some(before) => deep_merge(before, &value)?,
            None => value,
        };
        entries.insert(key, merged);
    }
    Ok(Value::Map(Map::from(entries)))
}

fn conditions(builder: EnvBuilder) -> EnvBuilder {
    let omit = Arc::new(MessageType { name: OMIT.to_owned(), fields: Some(Vec::new()) });
    builder
        .function("omit", false, Vec::new(), Type::Dyn, move |_| {
            Ok(Value::Message(Arc::new(MessageValue { message: omit.clone(), fields: Vec::new() })))
        })
        .function(
            "runtime.newCondition",
            false,
            vec![Type::map(Type::String, Type::Dyn)],
            condition_type(),
            |args| {
                let [Value::Map(map)] = args else { return Err(no_such_overload()) };
                let field = |name: &str| map.get(&Key::String(Text::from(name))).transpose();
                let mut fields = Vec::new();
                for name in CONDITION_FIELDS {
                    let text = match field(name)? {
                        Some(value @ Value::String(_)) => value,
                        None => Value::string(""),
                        Some(other) => {
                            return Err(EvalError::failed(format!(
                                "runtime.newCondition: {name} must be a string, got {}",
                                other.type_of()
                            )));
                        }
                    };
                    fields.push((name, text));
                }
                Ok(condition_value(fields))
            },
        )
        .function("runtime.condition", false, vec![Type::Dyn, Type::String], condition_type(), |args| {
            let [Value::Map(object), Value::String(wanted)] = args else { return Err(no_such_overload()) };
            let field = |map: &Map<'_>, name: &str| -> Result<Option<Json>, EvalError> {
                match map.get(&Key::String(Text::from(name))).transpose()? {
                    Some(value) => to_json(&value),
                    None => Ok(None),
                }
            };
            let status = field(object, "status")?.unwrap_or(Json::Null);
            let mut conditions = status.get("conditions").and_then(Json::as_array).into_iter().flatten();
            let found =
                conditions.rfind(|condition| condition.get("type").and_then(Json::as_str) == Some(&**wanted));
            let text = |name: &str| {
                let text = found.and_then(|condition| condition.get(name)).and_then(Json::as_str);
                Value::string(text.unwrap_or_default())
            };
            Ok(condition_value(CONDITION_FIELDS.iter().map(|name| (*name, text(name))).collect()))
        })
}

fn condition_value<'a>(fields: Vec<(&'a str, Value<'a>)>) -> Value<'a> {
    let Type::Message(message) = condition_type() else { return Value::Null };
    Value::Message(Arc::new(MessageValue { message, fields }))
}

fn no_such_overload() -> EvalError {
    EvalError::failed("no such overload")
}
