//! Named formats: what Kubernetes accepts as names, label values, dates and so on.
//!
//! `format.dns1123Label().validate(s)` is `optional.none()` if `s` is valid, else a list of Kubernetes' messages.

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::encoders::base64_decode;
use crate::library::opaque::{FORMAT, Opaque};
use crate::library::url;
use crate::time::is_date;
use crate::types::Type;
use crate::value::Value;

/// A format by name.
#[derive(Debug)]
pub struct NamedFormat {
    pub(crate) name: &'static str,
    /// Length of the regular expression behind it, which decides the cost.
    pub(crate) pattern_length: u64,
    validate: fn(&str) -> Vec<String>,
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", pattern_length: 30, validate: dns1123_label },
    NamedFormat { name: "dns1123Subdomain", pattern_length: 60, validate: dns1123_subdomain },
    NamedFormat { name: "dns1035Label", pattern_length: 30, validate: dns1035_label },
    NamedFormat { name: "qualifiedName", pattern_length: 60, validate: qualified_name },
    NamedFormat {
        name: "dns1123LabelPrefix",
        pattern_length: 30,
        validate: |text| dns1123_label(&without_trailing_dash(text)),
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        pattern_length: 60,
        validate: |text| dns1123_subdomain(&without_trailing_dash(text)),
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        pattern_length: 30,
        validate: |text| dns1035_label(&without_trailing_dash(text)),
    },
    NamedFormat { name: "labelValue", pattern_length: 40, validate: label_value },
    NamedFormat {
        name: "uri",
        pattern_length: 1103,
        validate: |text| url::check(text).err().into_iter().collect(),
    },
    NamedFormat {
        name: "uuid",
        pattern_length: 71,
        validate: |text| unless(is_uuid(text), "does not match the UUID format"),
    },
    NamedFormat {
        name: "byte",
        pattern_length: 84,
        validate: |text| {
            unless(
                !text.is_empty() && text.len().is_multiple_of(4) && base64_decode(text).is_some(),
                "invalid base64",
            )
        },
    },
    NamedFormat {
        name: "date",
        pattern_length: DATE_TIME_PATTERN.len() as u64,
        validate: |text| unless(is_date(text), "invalid date"),
    },
    NamedFormat {
        name: "datetime",
        pattern_length: DATE_TIME_PATTERN.len() as u64,
        validate: |text| unless(is_date_time(text), "invalid datetime"),
    },
];

pub(crate) fn declare(f: &mut Functions) {
    let complaints = Type::optional(Type::list(Type::String));
    f.member("validate", "format-validate", [FORMAT, Type::String], complaints, validate);
    f.global("format.named", "format-named", [Type::String], Type::optional(FORMAT), |_, args| match args {
        [Value::String(name)] => Ok(find(name).map_or(Value::none(), Value::some)),
        _ => Err(EvalError::no_such_overload()),
    });
    let named: [(&str, crate::functions::Builtin); 13] = [
        ("dns1123Label", |_, _| named("dns1123Label")),
        ("dns1123Subdomain", |_, _| named("dns1123Subdomain")),
        ("dns1035Label", |_, _| named("dns1035Label")),
        ("qualifiedName", |_, _| named("qualifiedName")),
        ("dns1123LabelPrefix", |_, _| named("dns1123LabelPrefix")),
        ("dns1123SubdomainPrefix", |_, _| named("dns1123SubdomainPrefix")),
        ("dns1035LabelPrefix", |_, _| named("dns1035LabelPrefix")),
        ("labelValue", |_, _| named("labelValue")),
        ("uri", |_, _| named("uri")),
        ("uuid", |_, _| named("uuid")),
        ("byte", |_, _| named("byte")),
        ("date", |_, _| named("date")),
        ("datetime", |_, _| named("datetime")),
    ];
    for (name, run) in named {
        let name = format!("format.{name}");
        f.global(&name, &name, [], FORMAT, run);
    }
}

fn find<'a>(name: &str) -> Option<Value<'a>> {
    FORMATS.iter().find(|format| format.name == name).map(|format| Value::Opaque(Opaque::Format(format)))
}

fn named<'a>(name: &str) -> EvalResult<'a> {
    find(name).ok_or_else(EvalError::no_such_overload)
}

fn validate<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let [Value::Opaque(Opaque::Format(format)), Value::String(text)] = args else {
        return Err(EvalError::no_such_overload());
    };
    let complaints = (format.validate)(text);
    if complaints.is_empty() {
        return Ok(Value::none());
    }
    Ok(Value::some(Value::list(complaints.into_iter().map(Value::string).collect())))
}

fn unless(fine: bool, complaint: &str) -> Vec<String> {
    if fine { Vec::new() } else { vec![complaint.to_owned()] }
}

// ---- names ----

const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1035_PATTERN: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Returns whether all bytes are `inner`, and the first and last also `edge`.
fn made_of(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => edge(*first) && edge(*last) && bytes.iter().all(|b| inner(*b)),
        _ => false,
    }
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Returns whether a text is a DNS label, regardless of its length.
fn looks_like_label(text: &str) -> bool {
    made_of(text, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-')
}

fn looks_like_subdomain(text: &str) -> bool {
    text.split('.').all(looks_like_label)
}

pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && looks_like_label(text)
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && looks_like_subdomain(text)
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

/// Label keys and values have the same limit, but different messages.
fn too_many_bytes(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn pattern_complaint(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{rule} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn dns1123_label(text: &str) -> Vec<String> {
    let mut complaints: Vec<String> = too_long(text, 63).into_iter().collect();
    if !looks_like_label(text) {
        complaints.push(if looks_like_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            pattern_complaint(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL_PATTERN,
                &["my-name", "123-abc"],
            )
        });
    }
    complaints
}

fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut complaints: Vec<String> = too_long(text, 253).into_iter().collect();
    if !looks_like_subdomain(text) {
        complaints.push(pattern_complaint(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &format!("{LABEL_PATTERN}(\\.{LABEL_PATTERN})*"),
            &["example.com"],
        ));
    }
    complaints
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut complaints: Vec<String> = too_long(text, 63).into_iter().collect();
    if !looks_like_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        complaints.push(pattern_complaint(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            DNS1035_PATTERN,
            &["my-name", "abc-123"],
        ));
    }
    complaints
}

fn looks_qualified(text: &str) -> bool {
    made_of(text, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn qualified_name(text: &str) -> Vec<String> {
    let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                character";
    let described = || pattern_complaint(rule, QUALIFIED_PATTERN, &["MyName", "my.name", "123-abc"]);
    let mut complaints = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                complaints.extend(dns1123_subdomain(prefix).iter().map(|text| format!("prefix part {text}")));
            }
            *name
        }
        _ => {
            let prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {prefixed}", described())];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if let Some(complaint) = too_many_bytes(name, 63) {
        complaints.push(format!("name part {complaint}"));
    }
    if !looks_qualified(name) {
        complaints.push(format!("name part {}", described()));
    }
    complaints
}

fn label_value(text: &str) -> Vec<String> {
    let mut complaints: Vec<String> = too_many_bytes(text, 63).into_iter().collect();
    if !text.is_empty() && !looks_qualified(text) {
        complaints.push(pattern_complaint(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &format!("({QUALIFIED_PATTERN})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    complaints
}

/// Masks a trailing dash of a prefix, because a suffix follows. Kubernetes also ignores the character before it.
fn without_trailing_dash(text: &str) -> String {
    let mut rest = text.chars();
    match (rest.next_back(), rest.next_back()) {
        (Some('-'), Some(_)) => format!("{}a", rest.as_str()),
        _ => text.to_owned(),
    }
}

/// Layout of the time of day after the date, in lower case. Any character may begin the fraction.
const DATE_TIME_PATTERN: &str = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time_of_day(time)
}

fn is_time_of_day(text: &str) -> bool {
    let two_digits =
        |text: &str, most: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit()) && text <= most;
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let on_the_clock = match clock.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute, second] => {
            two_digits(hour, "23") && two_digits(minute, "59") && two_digits(second, "59")
        }
        _ => false,
    };
    let is_zone = |text: &str| match text.strip_prefix(['+', '-']).and_then(|zone| zone.split_once(':')) {
        Some((hours, minutes)) => two_digits(hours, "99") && two_digits(minutes, "99"),
        None => text == "z",
    };
    let mut after = rest.chars();
    let fraction = after.next().map(|_| after.as_str()).unwrap_or_default();
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    on_the_clock && (is_zone(rest) || (digits > 0 && is_zone(&fraction[digits..])))
}

/// Thirty-two hexadecimal digits, with or without dashes in the usual places.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(length) {
            Some((digits, after)) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}
