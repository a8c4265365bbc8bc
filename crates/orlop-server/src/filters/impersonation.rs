//! Acting as somebody else: only those who may do everything may, and then no more than the other.

use std::sync::Arc;

use http::HeaderMap;
use orlop_api::{group_version::GroupResource, status::Status};

use crate::auth::User;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user that a request is to be answered for: the one who asks, or the one named in its headers.
pub(crate) fn impersonate(user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>, Status> {
    let named = headers.keys().any(|name| {
        let name = name.as_str();
        name == USER || name == GROUP || name == UID || name.starts_with(EXTRA)
    });
    if !named {
        return Ok(user);
    }
    let text = |value: &http::HeaderValue| value.to_str().map(str::to_owned);
    let unreadable = |_| Status::bad_request("an impersonation header is not text");
    let name = headers.get(USER).map(text).transpose().map_err(unreadable)?.unwrap_or_default();
    if name.is_empty() {
        return Err(Status::bad_request("requested impersonation without impersonating a user"));
    }
    if !user.is_master() {
        let why = format!(
            "User {:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
            user.name
        );
        return Err(Status::forbidden(&GroupResource::new("", "users"), &name, &why));
    }
    let groups = headers.get_all(GROUP).iter().map(text).collect::<Result<Vec<_>, _>>();
    let mut groups = groups.map_err(unreadable)?;
    // Everybody who is named is in this one, once.
    groups.retain(|group| group != "system:authenticated");
    if name == User::anonymous().name {
        return Ok(Arc::new(User::anonymous()));
    }
    let account = name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
    let named = match account {
        Some((namespace, account)) if groups.is_empty() => User::service_account(namespace, account),
        _ => User::authenticated(name, groups),
    };
    Ok(Arc::new(named))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn as_told(user: User, headers: &[(&'static str, &str)]) -> Result<User, Status> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        impersonate(user.into(), &map).map(|user| (*user).clone())
    }

    #[test]
    fn one_who_may_everything_acts_as_another_and_is_no_more_than_that() {
        let master = || User::master("admin");
        assert_eq!(as_told(master(), &[]).unwrap(), master());
        let bob = as_told(master(), &[(USER, "bob"), (GROUP, "dev"), (GROUP, "ops")]).unwrap();
        assert_eq!(bob, User::authenticated("bob", ["dev".to_owned(), "ops".to_owned()]));
        assert!(!bob.is_master());
        let account = as_told(master(), &[(USER, "system:serviceaccount:ns:builder")]).unwrap();
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!(account.groups, groups);
        assert_eq!(as_told(master(), &[(USER, "system:anonymous")]).unwrap(), User::anonymous());
    }

    #[test]
    fn everybody_else_is_refused() {
        let refused = as_told(User::authenticated("eve", []), &[(USER, "admin")]).unwrap_err();
        assert_eq!(refused.code, 403);
        assert_eq!(
            refused.message,
            "users \"admin\" is forbidden: User \"eve\" cannot impersonate resource \"users\" in API group \"\" \
             at the cluster scope"
        );
        assert_eq!(as_told(User::anonymous(), &[(USER, "admin")]).unwrap_err().code, 403);
        for (name, value) in [(GROUP, "system:masters"), (UID, "1"), ("impersonate-extra-scopes", "all")] {
            assert_eq!(as_told(User::master("admin"), &[(name, value)]).unwrap_err().code, 400, "{name}");
        }
    }
}
