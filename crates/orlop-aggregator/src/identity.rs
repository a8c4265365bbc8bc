//! The user of a request, in headers that an extension API server trusts because of the proxy's certificate.

use http::{HeaderMap, HeaderName, HeaderValue};
use orlop_api::user::UserInfo;
use orlop_auth::headers::escape_key;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA_PREFIX: &str = "x-remote-extra-";

/// A user whose name, group or extra field cannot be sent in a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("net/http: invalid header field value for {0:?}")]
pub struct InvalidUser(&'static str);

/// Sets the headers of a user, and removes those that a client sent.
pub fn set_user(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), InvalidUser> {
    let is_identity =
        |name: &HeaderName| [USER, UID, GROUP].contains(name) || name.as_str().starts_with(EXTRA_PREFIX);
    let sent: Vec<HeaderName> = headers.keys().filter(|name| is_identity(name)).cloned().collect();
    for name in sent {
        headers.remove(name);
    }
    let value = |text: &str, header: &'static str| {
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| InvalidUser(header))
    };
    headers.insert(USER, value(&user.name, "X-Remote-User")?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid, "X-Remote-Uid")?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(group, "X-Remote-Group")?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("{EXTRA_PREFIX}{}", escape_key(key)));
        let name = name.map_err(|_| InvalidUser("X-Remote-Extra-"))?;
        for text in values {
            headers.append(name.clone(), value(text, "X-Remote-Extra-")?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_user_and_nobody_else() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("admin"));
        headers.append("x-remote-group", HeaderValue::from_static("system:masters"));
        headers.insert("x-remote-extra-a", HeaderValue::from_static("x"));
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let mut user = UserInfo { name: "ann".to_owned(), uid: "7".to_owned(), ..UserInfo::default() };
        user.groups = vec!["a".to_owned(), "b".to_owned()];
        user.extra.insert("example.com/scope".to_owned(), vec!["r".to_owned(), "w".to_owned()]);
        set_user(&mut headers, &user).unwrap();
        let mut told: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        told.sort();
        assert_eq!(
            told,
            [
                "accept=*/*",
                "x-remote-extra-example.com%2fscope=r",
                "x-remote-extra-example.com%2fscope=w",
                "x-remote-group=a",
                "x-remote-group=b",
                "x-remote-uid=7",
                "x-remote-user=ann"
            ]
        );
        user.name = "ann\r\nx-remote-group: system:masters".to_owned();
        assert_eq!(set_user(&mut headers, &user), Err(InvalidUser("X-Remote-User")));
    }
}
