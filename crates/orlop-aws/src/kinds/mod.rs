//! ACK's kinds, one file each: fields, calls, comparisons.

mod acm_certificate;
pub(crate) mod apigatewayv2;
mod apigatewayv2_api;
mod apigatewayv2_api_mapping;
mod apigatewayv2_domain_name;
mod apigatewayv2_integration;
mod apigatewayv2_route;
mod apigatewayv2_stage;
mod dynamodb_table;
mod iam_policy;
mod iam_role;
mod lambda_alias;
mod lambda_function;
mod route53_hosted_zone;
mod route53_record_set;
mod s3_bucket;

use crate::kind::Kind;

/// Calls that the Bridge makes too.
pub(crate) mod acm {
    pub(crate) use super::acm_certificate::list_certificates;
}
pub(crate) mod lambda {
    pub(crate) use super::lambda_alias::{statement_of, statements};
}
pub(crate) mod route53 {
    pub(crate) use super::{
        route53_hosted_zone::{bare, parse_xml},
        route53_record_set::{API, Record, absolute, change_records, list_records, zone_name},
    };
}

/// Every kind.
pub(crate) static KINDS: &[&dyn Kind] = &[
    &lambda_function::Function,
    &lambda_alias::Alias,
    &apigatewayv2_api::Api,
    &apigatewayv2_stage::Stage,
    &apigatewayv2_route::Route,
    &apigatewayv2_integration::Integration,
    &apigatewayv2_domain_name::DomainName,
    &apigatewayv2_api_mapping::ApiMapping,
    &acm_certificate::Certificate,
    &route53_hosted_zone::HostedZone,
    &route53_record_set::RecordSet,
    &s3_bucket::Bucket,
    &dynamodb_table::Table,
    &iam_role::Role,
    &iam_policy::Policy,
];

/// Finds a kind by its service and name.
pub(crate) fn find(service: &str, kind: &str) -> Option<&'static dyn Kind> {
    KINDS.iter().copied().find(|known| known.about().service.name == service && known.about().kind == kind)
}
