//! Values with functions but without structure.

use std::net::IpAddr;
use std::sync::Arc;

use super::authorizer::{Authorization, Decision, GroupCheck, PathCheck, ResourceCheck};
use super::cidr::Cidr;
use super::named_format::NamedFormat;
use super::quantity::Quantity;
use super::semver::Version;
use super::url::Url;
use crate::types::Type;
use crate::value::Value;

pub(crate) const QUANTITY: Type = Type::Opaque("kubernetes.Quantity");
pub(crate) const URL: Type = Type::Opaque("kubernetes.URL");
pub(crate) const IP: Type = Type::Opaque("net.IP");
pub(crate) const CIDR: Type = Type::Opaque("net.CIDR");
pub(crate) const FORMAT: Type = Type::Opaque("kubernetes.NamedFormat");
pub(crate) const SEMVER: Type = Type::Opaque("kubernetes.Semver");
pub(crate) const PATH_CHECK: Type = Type::Opaque("kubernetes.authorization.PathCheck");
pub(crate) const GROUP_CHECK: Type = Type::Opaque("kubernetes.authorization.GroupCheck");
pub(crate) const DECISION: Type = Type::Opaque("kubernetes.authorization.Decision");

/// A value of an opaque type.
#[derive(Clone, Debug)]
pub enum Opaque {
    /// `quantity('1Gi')`
    Quantity(Arc<Quantity>),
    /// `url('https://example.com')`
    Url(Arc<Url>),
    /// `ip('10.0.0.1')`
    Ip(IpAddr),
    /// `cidr('10.0.0.0/8')`
    Cidr(Cidr),
    /// `format.dns1123Label()`
    Format(&'static NamedFormat),
    /// `semver('1.2.3')`
    Semver(Arc<Version>),
    /// `authorizer`
    Authorizer(Arc<Authorization>),
    /// `authorizer.path('/healthz')`
    PathCheck(Arc<PathCheck>),
    /// `authorizer.group('apps')`
    GroupCheck(Arc<GroupCheck>),
    /// `authorizer.group('apps').resource('deployments')`
    ResourceCheck(Arc<ResourceCheck>),
    /// Decision of an authorization check.
    Decision(Arc<Decision>),
}

impl Opaque {
    /// The name of the value's type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(_) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(_) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(_) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(one), Self::Quantity(other)) => one.compare(other).is_eq(),
            (Self::Url(one), Self::Url(other)) => one == other,
            (Self::Ip(one), Self::Ip(other)) => one == other,
            (Self::Cidr(one), Self::Cidr(other)) => one == other,
            (Self::Format(one), Self::Format(other)) => one.name == other.name,
            (Self::Semver(one), Self::Semver(other)) => one.compare(other).is_eq(),
            (Self::Authorizer(one), Self::Authorizer(other)) => Arc::ptr_eq(one, other),
            (Self::PathCheck(one), Self::PathCheck(other)) => Arc::ptr_eq(one, other),
            (Self::GroupCheck(one), Self::GroupCheck(other)) => Arc::ptr_eq(one, other),
            (Self::ResourceCheck(one), Self::ResourceCheck(other)) => Arc::ptr_eq(one, other),
            (Self::Decision(one), Self::Decision(other)) => one == other,
            _ => false,
        }
    }

    /// Bytes of an address or a network prefix; one for everything else.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Self::Ip(IpAddr::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) => 16,
            Self::Cidr(cidr) => u64::from(cidr.bits).div_ceil(8),
            _ => 1,
        }
    }
}

impl Value<'_> {
    /// Length of the pattern behind a named format, for cost.
    pub(crate) fn format_pattern_length(&self) -> u64 {
        match self {
            Self::Opaque(Opaque::Format(format)) => format.pattern_length,
            _ => 0,
        }
    }
}
