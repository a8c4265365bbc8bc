//! Impersonation filter: members of `system:masters` may act as another user, with that user's permissions.

use std::sync::Arc;

use http::HeaderMap;
use orlop_api::{group_version::GroupResource, status::Status, user::UserInfo};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Returns the effective user: the one named in the impersonation headers, or the authenticated one.
pub(crate) fn impersonate(user: Arc<UserInfo>, headers: &HeaderMap) -> Result<Arc<UserInfo>, Status> {
    let impersonates = headers.keys().any(|name| {
        let name = name.as_str();
        name == USER || name == GROUP || name == UID || name.starts_with(EXTRA)
    });
    if !impersonates {
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
    // Added once below.
    groups.retain(|group| group != "system:authenticated");
    if name == UserInfo::anonymous().name {
        return Ok(Arc::new(UserInfo::anonymous()));
    }
    let account = name.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
    let mut user = match account {
        Some((namespace, account)) if groups.is_empty() => UserInfo::service_account(namespace, account),
        _ => UserInfo::authenticated(name, groups),
    };
    user.uid = headers.get(UID).map(text).transpose().map_err(unreadable)?.unwrap_or_default();
    for (header, value) in headers {
        if let Some(key) = header.as_str().strip_prefix(EXTRA) {
            user.extra.entry(key.to_owned()).or_default().push(text(value).map_err(unreadable)?);
        }
    }
    Ok(Arc::new(user))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn impersonated(user: UserInfo, headers: &[(&'static str, &str)]) -> Result<UserInfo, Status> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        impersonate(user.into(), &map).map(|user| (*user).clone())
    }

    #[test]
    fn master_impersonates_user_with_only_its_permissions() {
        let master = || UserInfo::master("admin");
        assert_eq!(impersonated(master(), &[]).unwrap(), master());
        let bob = impersonated(master(), &[(USER, "bob"), (GROUP, "dev"), (GROUP, "ops")]).unwrap();
        assert_eq!(bob, UserInfo::authenticated("bob", ["dev".to_owned(), "ops".to_owned()]));
        assert!(!bob.is_master());
        let account = impersonated(master(), &[(USER, "system:serviceaccount:ns:builder")]).unwrap();
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!(account.groups, groups);
        assert_eq!(impersonated(master(), &[(USER, "system:anonymous")]).unwrap(), UserInfo::anonymous());
    }

    #[test]
    fn impersonation_is_forbidden_to_others() {
        let refused = impersonated(UserInfo::authenticated("eve", []), &[(USER, "admin")]).unwrap_err();
        assert_eq!(refused.code, 403);
        assert_eq!(
            refused.message,
            "users \"admin\" is forbidden: User \"eve\" cannot impersonate resource \"users\" in API group \"\" \
             at the cluster scope"
        );
        assert_eq!(impersonated(UserInfo::anonymous(), &[(USER, "admin")]).unwrap_err().code, 403);
        for (name, value) in [(GROUP, "system:masters"), (UID, "1"), ("impersonate-extra-scopes", "all")] {
            assert_eq!(
                impersonated(UserInfo::master("admin"), &[(name, value)]).unwrap_err().code,
                400,
                "{name}"
            );
        }
    }
}
