//! Bootstrap tokens: secrets in `kube-system` by which new nodes authenticate.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{object_meta, time::Time};
use serde_json::Value;

use crate::{
    User,
    authenticator::{Authenticated, AuthenticationError, Outcome, TokenAuthenticator},
    lookup::{ObjectLookup, Resource},
    time::{Clock, system_clock},
};

const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const DEFAULT_GROUP: &str = "system:bootstrappers";
const ID_CHARACTERS: usize = 6;
const SECRET_CHARACTERS: usize = 16;
/// Longest name of a group below [`DEFAULT_GROUP`], as Kubernetes' pattern has it.
const GROUP_CHARACTERS_MAX: usize = 256;

/// Authenticates tokens of the form `id.secret`, by secrets of type `bootstrap.kubernetes.io/token`.
#[derive(Debug)]
pub struct BootstrapTokens {
    objects: Arc<dyn ObjectLookup>,
    clock: Clock,
}

impl BootstrapTokens {
    /// Returns an authenticator.
    pub fn new(objects: Arc<dyn ObjectLookup>) -> Self {
        Self { objects, clock: system_clock }
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

#[async_trait]
impl TokenAuthenticator for BootstrapTokens {
    async fn authenticate(&self, token: &str, _audiences: &[String]) -> Outcome {
        let Some((id, secret)) = parse(token) else { return Ok(None) };
        let name = format!("bootstrap-token-{id}");
        let observed = self.objects.observe(Resource::Secrets, NAMESPACE, &name);
        let object = self.objects.get(Resource::Secrets, NAMESPACE, &name).await;
        let Some(object) = object.map_err(AuthenticationError::Unavailable)? else { return Ok(None) };
        let groups = match check(&object, id, secret, (self.clock)()) {
            Ok(groups) => groups,
            Err(why) => {
                tracing::debug!(name, why, "a bootstrap token is not valid");
                return Ok(None);
            }
        };
        let mut found =
            Authenticated::user(User { name: format!("system:bootstrap:{id}"), groups, ..User::default() });
        found.depends_on.push(observed);
        found.expires = expiration(&object).ok().flatten();
        Ok(Some(found))
    }
}

/// Splits a token into its id and its secret; `None` if it is not of the form.
fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let is = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (is(id, ID_CHARACTERS) && is(secret, SECRET_CHARACTERS)).then_some((id, secret))
}

/// Returns the groups of a token that its secret allows now.
fn check(object: &Value, id: &str, secret: &str, now: i64) -> Result<Vec<String>, &'static str> {
    if !object_meta::text(object_meta::of(object), "deletionTimestamp").is_empty() {
        return Err("it is deleted and awaiting removal");
    }
    if object["type"] != SECRET_TYPE {
        return Err("its secret has another type");
    }
    let known = data(object, "token-secret");
    if aws_lc_rs::constant_time::verify_slices_are_equal(known.as_bytes(), secret.as_bytes()).is_err() {
        return Err("its secret does not match");
    }
    if data(object, "token-id") != id {
        return Err("its id does not match");
    }
    match expiration(object) {
        Err(()) => return Err("its expiration cannot be read"),
        Ok(Some(expires)) if expires <= now => return Err("it is expired"),
        Ok(_) => {}
    }
    if data(object, "usage-bootstrap-authentication") != "true" {
        return Err("it is not for authentication");
    }
    let mut groups = BTreeSet::from([DEFAULT_GROUP.to_owned()]);
    let extra = data(object, "auth-extra-groups");
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !is_group(group) {
            return Err("it has an invalid group");
        }
        groups.insert(group.to_owned());
    }
    Ok(groups.into_iter().collect())
}

/// Returns the expiration in seconds since the epoch, if there is one; an error if it is not a time.
fn expiration(object: &Value) -> Result<Option<i64>, ()> {
    let text = data(object, "expiration");
    if text.is_empty() {
        return Ok(None);
    }
    Time::parse(&text).map(|time| Some(time.unix_seconds)).ok_or(())
}

fn data(object: &Value, key: &str) -> String {
    let encoded = object.pointer("/data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// `system:bootstrappers:` and 1 to 256 of a-z, 0-9, `:` and `-`, the last of which is a letter or digit.
fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(DEFAULT_GROUP).and_then(|rest| rest.strip_prefix(':')) else {
        return false;
    };
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= GROUP_CHARACTERS_MAX
        && rest.bytes().all(|byte| alphanumeric(byte) || matches!(byte, b':' | b'-'))
        && rest.bytes().last().is_some_and(alphanumeric)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let defaults = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in defaults.iter().chain(changes) {
            data[*key] = STANDARD.encode(value).into();
        }
        json!({"metadata": {"name": "bootstrap-token-abcdef"}, "type": SECRET_TYPE, "data": data})
    }

    fn checked(changes: &[(&str, &str)]) -> Result<Vec<String>, &'static str> {
        check(&secret(changes), "abcdef", "0123456789abcdef", 1_000_000_000)
    }

    #[test]
    fn tokens_have_an_id_and_a_secret() {
        assert_eq!(parse("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for bad in ["", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "a.b.c"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn secret_decides_about_a_token() {
        assert_eq!(checked(&[]), Ok(vec!["system:bootstrappers".to_owned()]));
        let groups = checked(&[("auth-extra-groups", "system:bootstrappers:b,system:bootstrappers:a:1")]);
        assert_eq!(
            groups,
            Ok(["system:bootstrappers", "system:bootstrappers:a:1", "system:bootstrappers:b"]
                .map(str::to_owned)
                .to_vec())
        );
        assert!(checked(&[("expiration", "2999-01-01T00:00:00Z")]).is_ok());
        for (key, value) in [
            ("token-secret", "0123456789abcdeX"),
            ("token-secret", ""),
            ("token-id", "abcdeg"),
            ("usage-bootstrap-authentication", "yes"),
            ("expiration", "2001-09-09T01:46:40Z"),
            ("expiration", "soon"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a-"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
        ] {
            assert!(checked(&[(key, value)]).is_err(), "{key}={value}");
        }
        let mut other = secret(&[]);
        other["type"] = "Opaque".into();
        assert!(check(&other, "abcdef", "0123456789abcdef", 0).is_err());
        let mut deleted = secret(&[]);
        deleted["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
        assert!(check(&deleted, "abcdef", "0123456789abcdef", 0).is_err());
    }
}
