//! Validation of names, label keys and label values, with Kubernetes' messages.
//!
//! Each function returns all messages; none means valid.
//! The grammars are checked by hand-written code, which is an order of magnitude
//! faster than regular expressions; the pattern is still part of the message.

const DNS1123_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS1123_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_LABEL: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

pub const LABEL_LENGTH_MAX: usize = 63;
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;

/// Name validation rule of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain: most kinds.
    #[default]
    Subdomain,
    /// DNS-1123 subdomain whose length Kubernetes counts in bytes: kinds whose names are validated declaratively.
    LongName,
    /// DNS-1123 label: namespaces, services.
    Label,
    /// DNS-1035 label: starts with a letter.
    Label1035,
    /// Any single path segment: RBAC and a few others.
    PathSegment,
    /// The kind's own validation: addresses.
    Own,
}

impl NameRule {
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => dns1123_subdomain(name),
            Self::LongName => subdomain_messages(name, too_many_bytes),
            Self::Label => dns1123_label(name),
            Self::Label1035 => dns1035_label(name),
            Self::PathSegment => path_segment(name),
            Self::Own => Vec::new(),
        }
    }

    /// Validates a `generateName`. A trailing dash is allowed, because a suffix follows.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        if self == Self::PathSegment {
            return path_segment_prefix(prefix);
        }
        let bytes = prefix.len();
        match prefix.strip_suffix('-') {
            Some(_) if bytes > 1 => {
                let kept = prefix.get(..bytes - 2).unwrap_or_default();
                self.check(&format!("{kept}a"))
            }
            _ => self.check(prefix),
        }
    }
}

/// `must be no more than N characters`.
fn too_many_characters(length_max: usize) -> String {
    format!("must be no more than {length_max} characters")
}

/// Length message of a label key or value, which Kubernetes counts in bytes.
fn too_many_bytes(length_max: usize) -> String {
    format!("must be no more than {length_max} bytes")
}

/// Returns a message with examples and the pattern.
pub fn pattern_message(message: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        messages.push(too_many_characters(LABEL_LENGTH_MAX));
    }
    if !is_dns_label(value) {
        if is_dns_subdomain(value) {
            messages.push("must not contain dots".to_owned());
        } else {
            messages.push(pattern_message(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                 and must start and end with an alphanumeric character",
                DNS1123_LABEL,
                &["my-name", "123-abc"],
            ));
        }
    }
    messages
}

/// Like [`dns1123_subdomain`], in upper or lower case.
pub fn dns1123_subdomain_caseless(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH_MAX {
        messages.push(too_many_characters(SUBDOMAIN_LENGTH_MAX));
    }
    if !is_dns_subdomain(&value.to_ascii_lowercase()) {
        messages.push(pattern_message(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with \
             an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["Example.com"],
        ));
    }
    messages
}

pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    subdomain_messages(value, too_many_characters)
}

fn subdomain_messages(value: &str, too_long: fn(usize) -> String) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH_MAX {
        messages.push(too_long(SUBDOMAIN_LENGTH_MAX));
    }
    if !is_dns_subdomain(value) {
        messages.push(pattern_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            DNS1123_SUBDOMAIN,
            &["example.com"],
        ));
    }
    messages
}

/// Validates a DNS search path, which may have underscores.
pub fn dns1123_subdomain_with_underscores(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH_MAX {
        messages.push(too_many_characters(SUBDOMAIN_LENGTH_MAX));
    }
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.strip_prefix('_').unwrap_or(label).as_bytes();
        bytes.first().is_some_and(inner)
            && bytes.last().is_some_and(inner)
            && bytes.iter().all(|byte| inner(byte) || matches!(byte, b'-' | b'_'))
    };
    if !value.split('.').all(label) {
        messages.push(pattern_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
             and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    messages
}

pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        messages.push(too_many_characters(LABEL_LENGTH_MAX));
    }
    if !is_dns_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        messages.push(pattern_message(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_LABEL,
            &["my-name", "abc-123"],
        ));
    }
    messages
}

pub fn path_segment(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|part| value.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Validates a qualified name `prefix/name`: a label or annotation key, a finalizer, a condition type.
pub fn qualified_name(value: &str) -> Vec<String> {
    const MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', \
                           and must start and end with an alphanumeric character";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut messages = Vec::new();
    let parts: Vec<_> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        ["", name] => {
            messages.push("prefix part must be non-empty".to_owned());
            *name
        }
        [prefix, name] => {
            let problems = subdomain_messages(prefix, too_many_bytes);
            messages.extend(problems.into_iter().map(|problem| format!("prefix part {problem}")));
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern_message(MESSAGE, LABEL_KEY, &EXAMPLES)
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        messages.push(format!("name part {}", too_many_bytes(LABEL_LENGTH_MAX)));
    }
    if !is_label_word(name) {
        messages.push(format!("name part {}", pattern_message(MESSAGE, LABEL_KEY, &EXAMPLES)));
    }
    messages
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        messages.push(too_many_bytes(LABEL_LENGTH_MAX));
    }
    if !value.is_empty() && !is_label_word(value) {
        messages.push(pattern_message(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    messages
}

/// Validates a key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_LENGTH_MAX {
        messages.push(too_many_characters(SUBDOMAIN_LENGTH_MAX));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(allowed) {
        messages.push(pattern_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match value {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        _ if value.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// Generates a name from a `generateName`: truncated, with five random characters appended.
pub fn generate(base: &str, mut random: impl FnMut() -> u32) -> String {
    /// Alphabet of generated names: no vowels and no lookalikes, so that no words appear.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const SUFFIX_LENGTH: usize = 5;
    let mut end = base.len().min(LABEL_LENGTH_MAX - SUFFIX_LENGTH);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    for _ in 0..SUFFIX_LENGTH {
        let index = usize::try_from(random()).unwrap_or_default() % ALPHABET.len();
        name.push(char::from(ALPHABET[index]));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_have_no_messages() {
        assert!(dns1123_subdomain("a.b-c.0").is_empty());
        assert!(dns1123_label("0a-b").is_empty());
        assert!(dns1035_label("a-0").is_empty());
        assert!(path_segment("system:node:x.y").is_empty());
        assert!(qualified_name("example.com/My_Name.1").is_empty());
        assert!(label_value("").is_empty());
        assert!(config_map_key("a.b_C-1").is_empty());
    }

    #[test]
    fn invalid_names_have_kubernetes_messages() {
        assert_eq!(
            dns1123_subdomain("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            dns1123_label("_"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(
            dns1035_label("1a"),
            [
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(
            qualified_name("a b"),
            [
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(
            qualified_name("a/b/c")[0],
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        );
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(dns1123_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(config_map_key(".."), ["must not be '..'"]);
    }

    #[test]
    fn generated_names_are_truncated_and_suffixed() {
        let mut next = 0;
        let mut random = || {
            next += 1;
            next
        };
        assert_eq!(generate("pod-", &mut random), "pod-cdfgh");
        assert_eq!(generate(&"a".repeat(100), &mut random).len(), 63);
        assert_eq!(generate(&"é".repeat(40), &mut random).len(), 63);
    }

    #[test]
    fn generate_name_may_end_in_a_dash() {
        assert!(NameRule::Label.check_prefix("abc-").is_empty());
        assert!(!NameRule::Label.check("abc-").is_empty());
        assert!(!NameRule::Label.check_prefix("-").is_empty());
        assert!(NameRule::PathSegment.check_prefix("..").is_empty());
    }
}
