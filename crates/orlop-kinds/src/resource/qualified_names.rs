//! Names of drivers, pools and attributes.
//!
//! Kubernetes validates some of them from tags of its types (`declared_…`), with texts of their own.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};

use super::{DRIVER_LENGTH_MAX, IDENTIFIER_LENGTH_MAX};
use crate::{
    storage::csi_driver::validate_driver_name,
    validation::{invalid_for_each, validate_dns_subdomain},
};

const POOL_NAME_LENGTH_MAX: usize = 253;

/// Validates the name of a pool: DNS subdomains with slashes between them.
pub(super) fn validate_pool_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    if name.len() > POOL_NAME_LENGTH_MAX {
        errors.push(FieldError::too_long(path, POOL_NAME_LENGTH_MAX));
    }
    errors.extend(name.split('/').flat_map(|part| validate_dns_subdomain(part, path)));
    errors
}

/// Validates the name of a pool.
pub(super) fn declared_pool_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        if name.len() > POOL_NAME_LENGTH_MAX {
            errors.push(FieldError::too_long(path, POOL_NAME_LENGTH_MAX));
        }
        for (index, part) in name.split('/').enumerate() {
            if part.is_empty() {
                errors.push(FieldError::invalid(path, name, format!("segment {index}: must not be empty")));
                continue;
            }
            let prefix = format!("segment {index}: ");
            let problems = validate_dns_subdomain(part, path).into_iter();
            errors.extend(problems.map(|error| error.with_detail_prefix(&prefix)));
        }
    }
    declared(errors)
}

/// Validates the name of a driver: a DNS subdomain, in any case.
pub(super) fn declared_driver_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        errors.extend(invalid_for_each(path, name, names::dns1123_subdomain_caseless(name)));
        if name.chars().count() > DRIVER_LENGTH_MAX {
            errors.push(FieldError::too_many_characters(path, DRIVER_LENGTH_MAX));
        }
    }
    declared(errors)
}

/// Validates a UUID in its usual form, in lower case.
pub(super) fn declared_uuid(uuid: &str, path: &FieldPath) -> Option<FieldError> {
    let is_valid = uuid.len() == 36
        && uuid.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    let detail = "must be a lowercase UUID in 8-4-4-4-12 format";
    (!is_valid).then(|| FieldError::invalid(path, uuid, detail).declaratively())
}

/// Validates the name of an attribute with its domain.
pub(super) fn declared_fully_qualified(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] => errors.extend(validate_identifier(name, path)),
        [domain, name] => {
            if domain.is_empty() {
                errors.push(FieldError::invalid(path, "", "prefix must not be empty"));
            } else {
                if domain.len() > DRIVER_LENGTH_MAX {
                    errors.push(FieldError::too_long(path, DRIVER_LENGTH_MAX));
                }
                let problems = validate_dns_subdomain(domain, path).into_iter();
                errors.extend(problems.map(|error| error.with_detail_prefix("prefix: ")));
            }
            match name {
                "" => errors.push(FieldError::invalid(path, "", "name must not be empty")),
                name => errors.extend(validate_identifier(name, path)),
            }
        }
        // As in Kubernetes, which overlooks them.
        _ => {}
    }
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(FieldError::invalid(path, name, detail));
    }
    declared(errors)
}

/// Validates the name of an attribute: an identifier, with or without a domain.
pub(super) fn validate_qualified(name: &str, path: &FieldPath) -> Vec<FieldError> {
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] => validate_identifier(name, path),
        [domain, name] => {
            let mut errors = match domain {
                "" => vec![FieldError::invalid(path, "", "the domain must not be empty")],
                domain => validate_driver_name(domain, path),
            };
            errors.extend(match name {
                "" => vec![FieldError::invalid(path, "", "the name must not be empty")],
                name => validate_identifier(name, path),
            });
            errors
        }
        // As in Kubernetes, which overlooks them.
        _ => Vec::new(),
    }
}

fn validate_identifier(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.len() > IDENTIFIER_LENGTH_MAX {
        errors.push(FieldError::too_long(path, IDENTIFIER_LENGTH_MAX));
    }
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_identifier = name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit());
    if !is_identifier {
        let detail = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                      alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for \
                      validation is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

/// Marks errors that Kubernetes finds declaratively.
pub(super) fn declared(errors: impl IntoIterator<Item = FieldError>) -> Vec<FieldError> {
    errors.into_iter().map(FieldError::declaratively).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn declared_names_have_texts_of_their_own() {
        let path = FieldPath::root("p");
        assert_eq!(
            messages(declared_pool_name("a//b", &path)),
            ["p: Invalid value: \"a//b\": segment 1: must not be empty"]
        );
        assert!(
            messages(declared_pool_name("a/B", &path))[0]
                .contains("segment 1: a lowercase RFC 1123 subdomain")
        );
        assert_eq!(
            messages(declared_fully_qualified("/", &path)),
            [
                "p: Invalid value: \"\": prefix must not be empty",
                "p: Invalid value: \"\": name must not be empty",
            ]
        );
        assert!(messages(declared_fully_qualified("A/b", &path))[0].contains("prefix: a lowercase RFC 1123"));
        assert!(declared_driver_name("Dra.Example.com", &path).is_empty());
        let long = "a".repeat(64);
        assert_eq!(
            messages(declared_driver_name(&long, &path)),
            ["p: Too long: may not be more than 63 characters"]
        );
        assert!(declared_uuid("0f5a2d3c-0000-4000-8000-00000000000a", &path).is_none());
        assert_eq!(
            declared_uuid("0F5A2D3C-0000-4000-8000-00000000000A", &path).unwrap().to_string(),
            "p: Invalid value: \"0F5A2D3C-0000-4000-8000-00000000000A\": must be a lowercase UUID in 8-4-4-4-12 format"
        );
    }
}
