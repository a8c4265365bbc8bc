//! Checks that many kinds share, with Kubernetes' words.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    object_meta::IMMUTABLE,
};
use serde_json::Value;

use super::{
    ip_range::IpRange,
    read::{list, text},
    same::same,
};

pub(super) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const LOOPBACK: &str = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
pub(super) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PORT_NAME_LENGTH_MAX: usize = 15;
const PORT_MAX: i64 = 65_535;

/// One error for each thing wrong with a value.
pub(super) fn each(path: &FieldPath, value: impl Into<Value>, problems: Vec<String>) -> Vec<FieldError> {
    let value = value.into();
    problems.into_iter().map(|why| FieldError::invalid(path, value.clone(), why)).collect()
}

/// A number that may not be below zero; absent is fine.
pub(super) fn not_negative(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let number = object.get(field)?.as_i64()?;
    (number < 0).then(|| FieldError::invalid(&path.child(field), number, NOT_NEGATIVE))
}

/// A number that must be above zero; absent is fine.
pub(super) fn positive(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let number = object.get(field)?.as_i64()?;
    (number <= 0).then(|| FieldError::invalid(&path.child(field), number, "must be greater than 0"))
}

/// Text that must be there.
pub(super) fn required(object: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let given = object.get(field).and_then(Value::as_str).unwrap_or_default();
    given.is_empty().then(|| FieldError::required(&path.child(field), ""))
}

/// Text that must be one of a few; absent is fine.
pub(super) fn supported(
    object: &Value,
    field: &str,
    path: &FieldPath,
    allowed: &[&str],
) -> Option<FieldError> {
    let given = object.get(field)?.as_str()?;
    (!allowed.contains(&given)).then(|| FieldError::not_supported(&path.child(field), given, allowed))
}

/// Text that must be there and be one of a few.
pub(super) fn required_among(
    object: &Value,
    field: &str,
    path: &FieldPath,
    allowed: &[&str],
) -> Option<FieldError> {
    required(object, field, path).or_else(|| supported(object, field, path, allowed))
}

/// A field that may not change.
pub(super) fn immutable(new: &Value, old: &Value, field: &str, path: &FieldPath) -> Option<FieldError> {
    let (new, old) = (new.get(field).unwrap_or(&Value::Null), old.get(field).unwrap_or(&Value::Null));
    (!same(new, old)).then(|| FieldError::invalid(&path.child(field), new.clone(), IMMUTABLE))
}

pub(super) fn port_number(port: i64) -> Vec<String> {
    if (1..=PORT_MAX).contains(&port) { Vec::new() } else { vec![between(1, PORT_MAX)] }
}

pub(super) fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// The name of a port: an IANA service name.
pub(super) fn port_name(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, why: &str| {
        if !holds {
            problems.push(why.to_owned());
        }
    };
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    unless(name.len() <= PORT_NAME_LENGTH_MAX, "must be no more than 15 characters");
    unless(
        !name.is_empty() && name.bytes().all(allowed),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    unless(name.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    unless(!name.contains("--"), "must not contain consecutive hyphens");
    let edge = name.starts_with('-') || name.ends_with('-');
    unless(name.is_empty() || !edge, "must not begin or end with a hyphen");
    problems
}

/// A port by number or by name.
pub(super) fn port_number_or_name(port: Option<&Value>, path: &FieldPath) -> Vec<FieldError> {
    match port {
        Some(Value::String(name)) => each(path, name.as_str(), port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or_default();
            each(path, number, port_number(number))
        }
    }
}

/// An IP address.
pub(super) fn ip(address: &str, path: &FieldPath) -> Vec<FieldError> {
    match address.parse::<IpAddr>() {
        Ok(_) => Vec::new(),
        Err(_) => {
            vec![FieldError::invalid(
                path,
                address,
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )]
        }
    }
}

/// A range of addresses.
pub(super) fn cidr(range: &str, path: &FieldPath) -> Vec<FieldError> {
    if IpRange::parse(range).is_some() {
        return Vec::new();
    }
    vec![FieldError::invalid(path, range, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")]
}

/// An address that traffic can be sent to.
pub(super) fn endpoint_ip(address: &str, path: &FieldPath) -> Vec<FieldError> {
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return vec![FieldError::invalid(path, address, "must be a valid IP address")];
    };
    let (link_local, multicast) = match parsed {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let problems = [
        (parsed.is_unspecified(), format!("may not be unspecified ({address})")),
        (parsed.is_loopback(), LOOPBACK.to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ];
    each(path, address, problems.into_iter().filter(|(holds, _)| *holds).map(|(_, why)| why).collect())
}

/// A name of DNS, under a field.
pub(super) fn dns_label(name: &str, path: &FieldPath) -> Vec<FieldError> {
    each(path, name, names::dns1123_label(name))
}

/// A name of DNS with dots, under a field.
pub(super) fn dns_subdomain(name: &str, path: &FieldPath) -> Vec<FieldError> {
    each(path, name, names::dns1123_subdomain(name))
}

/// A number of things or a share of them: `3` or `25%`, not below zero.
pub(super) fn count_or_percentage(value: &Value, path: &FieldPath) -> Vec<FieldError> {
    match value {
        Value::String(share) if !is_percentage(share) => {
            let message = "a valid percent string must be a numeric string followed by an ending '%'";
            let detail = names::pattern_message(message, "[0-9]+%", &["1%", "93%"]);
            vec![FieldError::invalid(path, share.as_str(), detail)]
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            vec![FieldError::invalid(path, value.clone(), NOT_NEGATIVE)]
        }
        _ => Vec::new(),
    }
}

fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a percentage says; none for a count.
pub(super) fn percentage(value: &Value) -> Option<u64> {
    value.as_str()?.strip_suffix('%')?.parse().ok()
}

/// A share may not be above the whole.
pub(super) fn at_most_all(value: &Value, path: &FieldPath) -> Option<FieldError> {
    (percentage(value)? > 100)
        .then(|| FieldError::invalid(path, value.clone(), "must not be greater than 100%"))
}

/// What appears more than once in a list, by one of its fields.
pub(super) fn duplicates(items: &[Value], field: &str, path: &FieldPath) -> Vec<FieldError> {
    let name = |item: &Value| text(item, &format!("/{field}")).to_owned();
    let names: Vec<String> = items.iter().map(name).collect();
    let repeated = |index: &usize| !names[*index].is_empty() && names[..*index].contains(&names[*index]);
    let errors = (0..names.len()).filter(repeated);
    errors
        .map(|index| FieldError::duplicate(&path.index(index).child(field), names[index].as_str()))
        .collect()
}

/// Applies a check to every item of a list.
pub(super) fn every(
    object: &Value,
    field: &str,
    path: &FieldPath,
    check: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let path = path.child(field);
    let items = list(object, &format!("/{field}")).iter().enumerate();
    items.flat_map(|(index, item)| check(item, &path.index(index))).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Errors as text.
    pub(crate) fn told(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_addresses_and_shares_have_kubernetes_words() {
        let path = FieldPath::root("p");
        assert_eq!(
            told(port_number_or_name(Some(&json!(0)), &path)),
            ["p: Invalid value: 0: must be between 1 and 65535, inclusive"]
        );
        assert_eq!(
            port_name("Http"),
            ["must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"]
        );
        assert_eq!(port_name("1-2"), ["must contain at least one letter (a-z)"]);
        assert_eq!(
            port_name("-a--b"),
            ["must not contain consecutive hyphens", "must not begin or end with a hyphen"]
        );
        assert_eq!(port_name("averyveryverylongname"), ["must be no more than 15 characters"]);
        assert_eq!(
            told(ip("x", &path)),
            [r#"p: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#]
        );
        assert_eq!(
            told(cidr("10.0.0.0/33", &path)),
            [
                r#"p: Invalid value: "10.0.0.0/33": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#
            ]
        );
        assert_eq!(
            told(endpoint_ip("127.0.0.1", &path)),
            [r#"p: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#]
        );
        assert_eq!(told(endpoint_ip("224.0.0.1", &path)).len(), 1);
        assert_eq!(
            told(count_or_percentage(&json!("x"), &path)),
            [
                r#"p: Invalid value: "x": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#
            ]
        );
        assert_eq!(
            told(count_or_percentage(&json!(-1), &path)),
            ["p: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            at_most_all(&json!("101%"), &path).unwrap().to_string(),
            r#"p: Invalid value: "101%": must not be greater than 100%"#
        );
        assert_eq!(
            told(duplicates(&[json!({"n": "a"}), json!({"n": "a"})], "n", &path)),
            [r#"p[1].n: Duplicate value: "a""#]
        );
    }
}
