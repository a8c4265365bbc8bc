//! Impersonation filter: a user acts as another, with that user's permissions.
//!
//! Constrained modes come first, as in Kubernetes 1.36: each is for one sort of user and needs two permissions, to
//! impersonate that user (`impersonate:MODE`) and to do what the request does as somebody else
//! (`impersonate-on:MODE:VERB`). The last mode is the unconstrained one, with the verb `impersonate`.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use http::{HeaderMap, HeaderValue};
use orlop_api::{
    field_error::{FieldPath, aggregate},
    names::dns1123_subdomain,
    status::Status,
    user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, MASTERS, UserInfo, service_account_of},
};
use orlop_auth::{domain_path, headers::unescape_key};

use crate::{
    auth::{Access, Decision, UnionAuthorizer, authorizer::forbidden},
    request::Attributes,
};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const NODE: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
/// Number of groups or extra values from which on a permission for all of them is tried first.
const MANY: usize = 4;

/// A constrained way to impersonate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node that its pod is on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account, and nothing else of it.
    ServiceAccount,
    /// A user who is neither.
    UserInfo,
}

impl Mode {
    const ALL: &[Self] = &[Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo];

    /// Returns the verb of the permission to be a user by this mode, which audit knows the mode by.
    fn verb(self) -> &'static str {
        match self {
            Self::AssociatedNode => "impersonate:associated-node",
            Self::ArbitraryNode => "impersonate:arbitrary-node",
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
        }
    }

    fn name(self) -> &'static str {
        self.verb().trim_start_matches("impersonate:")
    }

    /// Returns true if the mode is for a user that a requester wants to be.
    fn is_for(self, wanted: &UserInfo, requester: &UserInfo) -> bool {
        let name_only = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Self::AssociatedNode => {
                name_only && node_of(wanted).is_some_and(|node| requester.is_on_node(node))
            }
            Self::ArbitraryNode => name_only && node_of(wanted).is_some(),
            Self::ServiceAccount => name_only && service_account_of(&wanted.name).is_some(),
            Self::UserInfo => node_of(wanted).is_none() && service_account_of(&wanted.name).is_none(),
        }
    }
}

/// Replaces the user of a request by the one in the impersonation headers, if there is one and its user may. Returns the verb
/// of a constrained impersonation.
pub(crate) async fn impersonate(
    access: &Access,
    attributes: &mut Arc<Attributes>,
    headers: &HeaderMap,
) -> Result<Option<&'static str>, Status> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let requester = attributes.user.clone();
    let mut first_refusal = None;
    for mode in Mode::ALL.iter().filter(|mode| mode.is_for(&wanted, &requester)) {
        match constrained(&access.authorizer, *mode, &wanted, attributes).await {
            Ok(user) => {
                Arc::make_mut(attributes).user = Arc::new(user);
                return Ok(Some(mode.verb()));
            }
            Err(refusal) => drop(first_refusal.get_or_insert(refusal)),
        }
    }
    let unconstrained = Check { authorizer: &access.authorizer, requester, verb: "impersonate", mode: None };
    match unconstrained.user(&wanted).await {
        Ok(user) => {
            Arc::make_mut(attributes).user = Arc::new(user);
            Ok(None)
        }
        Err(refusal) => Err(first_refusal.unwrap_or(refusal)),
    }
}

async fn constrained(
    authorizer: &UnionAuthorizer,
    mode: Mode,
    wanted: &UserInfo,
    attributes: &Attributes,
) -> Result<UserInfo, Status> {
    let mut requester = attributes.user.clone();
    if mode == Mode::AssociatedNode {
        // Authorizers see only the keys of extra fields: the values differ by pod, the permission does not.
        let keys = requester.extra.keys().cloned().collect();
        let key = "authentication.kubernetes.io/associated-node-keys".to_owned();
        requester = Arc::new(UserInfo { extra: BTreeMap::from([(key, keys)]), ..(*requester).clone() });
    }
    let verb = format!("impersonate-on:{}:{}", mode.name(), attributes.verb);
    let on = Attributes { user: requester.clone(), verb: verb.as_str().into(), ..attributes.clone() };
    authorize(authorizer, &on).await?;
    Check { authorizer, requester, verb: mode.verb(), mode: Some(mode) }.user(wanted).await
}

/// The permissions to be a user.
struct Check<'a> {
    authorizer: &'a UnionAuthorizer,
    requester: Arc<UserInfo>,
    verb: &'static str,
    /// `None` for unconstrained impersonation.
    mode: Option<Mode>,
}

impl Check<'_> {
    /// Returns the user that the requester becomes, if it may.
    async fn user(&self, wanted: &UserInfo) -> Result<UserInfo, Status> {
        let mut user = wanted.clone();
        self.check_name(wanted, &mut user).await?;
        if !wanted.uid.is_empty() {
            authorize(self.authorizer, &self.attributes(AUTHENTICATION_GROUP, "uids", &wanted.uid)).await?;
        }
        self.check_groups(&wanted.groups).await?;
        self.check_extra(&wanted.extra).await?;
        let group = match user.name == UserInfo::anonymous().name {
            true => Some(ALL_UNAUTHENTICATED),
            false => (!user.is_in_group(ALL_UNAUTHENTICATED)).then_some(ALL_AUTHENTICATED),
        };
        if let Some(group) = group.filter(|group| !user.is_in_group(group)) {
            user.groups.push(group.to_owned());
        }
        Ok(user)
    }

    fn attributes(&self, group: &str, resource: &str, name: &str) -> Attributes {
        Attributes {
            user: self.requester.clone(),
            verb: self.verb.into(),
            is_resource_request: true,
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    /// API group of users, groups, nodes and service accounts.
    fn user_group(&self) -> &'static str {
        if self.mode.is_some() { AUTHENTICATION_GROUP } else { "" }
    }

    async fn check_name(&self, wanted: &UserInfo, user: &mut UserInfo) -> Result<(), Status> {
        let mut attributes = self.attributes(self.user_group(), "users", &wanted.name);
        let has_groups = !wanted.groups.is_empty();
        let refused = |attributes: &Attributes, kind: &str| {
            let groups: Vec<String> = wanted.groups.iter().map(|group| format!("{group:?}")).collect();
            let why =
                format!("when impersonating a {kind}, cannot impersonate groups [{}]", groups.join(" "));
            Err(forbidden(attributes, &why))
        };
        if self.mode.is_some()
            && let Some(node) = node_of(wanted)
        {
            attributes.resource = "nodes".to_owned();
            // The permission to be the node of one's pod is one for all nodes.
            attributes.name = if self.mode == Some(Mode::AssociatedNode) { "*" } else { node }.to_owned();
            if has_groups {
                return refused(&attributes, "node");
            }
            user.groups = vec![NODES_GROUP.to_owned()];
        }
        if let Some((namespace, name)) = service_account_of(&wanted.name) {
            attributes.resource = "serviceaccounts".to_owned();
            attributes.namespace = namespace.to_owned();
            attributes.name = name.to_owned();
            if self.mode.is_some() && has_groups {
                return refused(&attributes, "service account");
            }
            if !has_groups {
                user.groups = UserInfo::service_account(namespace, name).groups;
            }
        }
        authorize(self.authorizer, &attributes).await
    }

    async fn check_groups(&self, groups: &[String]) -> Result<(), Status> {
        let attributes = |name: &str| self.attributes(self.user_group(), "groups", name);
        if self.mode.is_some() {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(forbidden(&attributes(""), why));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(forbidden(&attributes(MASTERS), why));
            }
            if groups.len() >= MANY && authorize(self.authorizer, &attributes("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            authorize(self.authorizer, &attributes(group)).await?;
        }
        Ok(())
    }

    async fn check_extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Status> {
        let attributes = |key: &str, value: &str| {
            let subresource = Some(key).filter(|key| !key.is_empty()).map(Into::into);
            Attributes { subresource, ..self.attributes(AUTHENTICATION_GROUP, "userextras", value) }
        };
        if self.mode.is_some() {
            for (key, values) in extra {
                check_extra_key(key, values).map_err(|why| forbidden(&attributes("", ""), &why))?;
            }
            let values: usize = extra.values().map(Vec::len).sum();
            let is_large = extra.len() >= MANY || values >= MANY;
            if is_large && authorize(self.authorizer, &attributes("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                authorize(self.authorizer, &attributes(key, value)).await?;
            }
        }
        Ok(())
    }
}

fn check_extra_key(key: &str, values: &[String]) -> Result<(), String> {
    if key.is_empty() {
        return Err("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let errors = domain_path::check(&FieldPath::root("extra").child("key"), key);
    if !errors.is_empty() {
        return Err(format!("impersonating an invalid key in extra is not allowed: {}", aggregate(&errors)));
    }
    if key != key.to_lowercase() {
        return Err(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    if values.iter().any(String::is_empty) {
        return Err("impersonating the empty string value in extra is not allowed".to_owned());
    }
    Ok(())
}

async fn authorize(authorizer: &UnionAuthorizer, attributes: &Attributes) -> Result<(), Status> {
    match authorizer.authorize(attributes).await {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Err(forbidden(attributes, &reason)),
    }
}

/// Returns the user in the headers, if there is one.
fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, Status> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let mut user = UserInfo {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        ..UserInfo::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            user.extra.entry(unescape_key(key)).or_default().push(text(value));
        }
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", go_syntax(&user))))
}

/// Returns a user in Go's syntax, as Kubernetes prints it.
fn go_syntax(user: &UserInfo) -> String {
    let list = |values: &[String]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        if values.is_empty() {
            "[]string(nil)".to_owned()
        } else {
            format!("[]string{{{}}}", values.join(", "))
        }
    };
    let mut extra = String::new();
    for (key, values) in &user.extra {
        let comma = if extra.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(extra, "{comma}{key:?}:{}", list(values));
    }
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{extra}}}") };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
        user.name,
        user.uid,
        list(&user.groups),
    )
}

/// Returns the node that a user is.
fn node_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(NODE).filter(|node| dns1123_subdomain(node).is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use proptest::prelude::*;

    use super::*;

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    async fn impersonated(user: UserInfo, headers: &[(&'static str, &str)]) -> Result<UserInfo, Status> {
        let mut attributes = Attributes { user: user.into(), verb: "get".into(), ..Attributes::default() };
        attributes.path = "/metrics".to_owned();
        let mut attributes = Arc::new(attributes);
        impersonate(&Access::default(), &mut attributes, &map(headers)).await?;
        Ok((*attributes.user).clone())
    }

    #[tokio::test]
    async fn master_impersonates_user_with_only_its_permissions() {
        let master = || UserInfo::master("admin");
        assert_eq!(impersonated(master(), &[]).await.unwrap(), master());
        let bob = impersonated(master(), &[(USER, "bob"), (GROUP, "dev"), (GROUP, "ops")]).await.unwrap();
        assert_eq!(bob, UserInfo::authenticated("bob", ["dev".to_owned(), "ops".to_owned()]));
        assert!(!bob.is_master());
        let account = impersonated(master(), &[(USER, "system:serviceaccount:ns:builder")]).await.unwrap();
        let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!(account.groups, groups);
        let anonymous = impersonated(master(), &[(USER, "system:anonymous")]).await.unwrap();
        assert_eq!(anonymous, UserInfo::anonymous());
        let node = impersonated(master(), &[(USER, "system:node:a")]).await.unwrap();
        assert_eq!(node.groups, ["system:nodes", "system:authenticated"]);
        // Only unconstrained impersonation allows this.
        let other = impersonated(master(), &[(USER, "bob"), (GROUP, "system:masters")]).await.unwrap();
        assert!(other.is_master());
        let outsider = [(USER, "bob"), (GROUP, "system:unauthenticated")];
        assert_eq!(impersonated(master(), &outsider).await.unwrap().groups, ["system:unauthenticated"]);
    }

    #[tokio::test]
    async fn uid_and_extra_are_impersonated_with_decoded_keys() {
        let headers = [
            (USER, "bob"),
            (UID, "u-1"),
            ("impersonate-extra-example.com%2fscope", "a"),
            ("impersonate-extra-example.com%2Fscope", "b"),
        ];
        let bob = impersonated(UserInfo::master("admin"), &headers).await.unwrap();
        assert_eq!(
            (bob.uid.as_str(), &bob.extra["example.com/scope"][..]),
            ("u-1", &["a".into(), "b".into()][..])
        );
    }

    #[tokio::test]
    async fn impersonation_is_forbidden_to_others() {
        let refused = impersonated(UserInfo::authenticated("eve", []), &[(USER, "admin")]).await.unwrap_err();
        assert_eq!(refused.code, 403);
        assert_eq!(
            refused.message,
            "forbidden: User \"eve\" cannot impersonate-on:user-info:get path \"/metrics\""
        );
        assert_eq!(impersonated(UserInfo::anonymous(), &[(USER, "admin")]).await.unwrap_err().code, 403);
    }

    #[tokio::test]
    async fn groups_uid_and_extra_need_a_user() {
        for (headers, shown) in [
            (
                (GROUP, "system:masters"),
                "Name:\"\", UID:\"\", Groups:[]string{\"system:masters\"}, Extra:map[string][]string(nil)",
            ),
            ((UID, "1"), "Name:\"\", UID:\"1\", Groups:[]string(nil), Extra:map[string][]string(nil)"),
            (
                ("impersonate-extra-scopes", "all"),
                "Name:\"\", UID:\"\", Groups:[]string(nil), Extra:map[string][]string{\"scopes\":[]string{\"all\"}}",
            ),
        ] {
            let refused = impersonated(UserInfo::master("admin"), &[headers]).await.unwrap_err();
            assert_eq!(refused.code, 400);
            let expected =
                format!("requested &user.DefaultInfo{{{shown}}} without impersonating a user name");
            assert_eq!(refused.message, expected);
        }
    }

    #[test]
    fn modes_are_for_their_users() {
        let on_node = |node: &str| {
            let mut account = UserInfo::service_account("ns", "agent");
            account.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()]);
            account
        };
        let user = |name: &str| UserInfo { name: name.to_owned(), ..UserInfo::default() };
        let modes = |wanted: &UserInfo, requester: &UserInfo| -> Vec<Mode> {
            Mode::ALL.iter().copied().filter(|mode| mode.is_for(wanted, requester)).collect()
        };
        let eve = user("eve");
        assert_eq!(modes(&user("system:node:a"), &on_node("a")), [Mode::AssociatedNode, Mode::ArbitraryNode]);
        assert_eq!(modes(&user("system:node:a"), &on_node("b")), [Mode::ArbitraryNode]);
        assert_eq!(modes(&user("system:serviceaccount:ns:x"), &eve), [Mode::ServiceAccount]);
        assert_eq!(modes(&user("bob"), &eve), [Mode::UserInfo]);
        let with_group = UserInfo { groups: vec!["g".to_owned()], ..user("system:node:a") };
        assert_eq!(modes(&with_group, &eve), []);
    }

    #[test]
    fn constrained_extra_keys_are_validated() {
        let values = ["v".to_owned()];
        assert!(check_extra_key("example.com/scope", &values).is_ok());
        for key in ["", "scope", "example.com/Scope", "-/x"] {
            assert!(check_extra_key(key, &values).is_err(), "{key}");
        }
        assert!(check_extra_key("example.com/scope", &[String::new()]).is_err());
    }

    proptest! {
        #[test]
        fn any_headers_are_read_or_refused(name in "[a-z0-9%-]{0,12}", value in "[ -~]{0,30}") {
            let mut headers = map(&[(USER, &value), (GROUP, &value)]);
            let name: http::HeaderName = format!("{EXTRA}{name}").parse().unwrap();
            headers.append(name, value.parse().unwrap());
            let _ = wanted(&headers);
        }
    }
}
