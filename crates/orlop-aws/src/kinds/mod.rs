//! ACK's kinds, one file each: fields, calls, comparisons.

mod acm_certificate;
mod acm_private_key;
pub(crate) mod apigatewayv2;
mod apigatewayv2_api;
mod apigatewayv2_api_mapping;
mod apigatewayv2_domain_name;
mod apigatewayv2_integration;
mod apigatewayv2_route;
mod apigatewayv2_stage;
mod dynamodb_replicas;
mod dynamodb_table;
mod iam_policy;
mod iam_role;
mod lambda_alias;
mod lambda_function;
mod route53_hosted_zone;
mod route53_record_set;
mod s3_bucket;
mod s3_bucket_acl;
mod s3_bucket_parts;

use crate::kind::Kind;

/// Calls that the Bridge makes too.
pub(crate) mod acm {
    pub(crate) use super::acm_certificate::list_certificates;
}
pub(crate) mod lambda {
    pub(crate) use super::lambda_alias::{statement_of, statements};
}
pub(crate) mod route53 {
    pub(crate) use super::route53_record_set::{
        API, Record, absolute, bare, change_records, list_records, zone_name,
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
    KINDS
        .iter()
        .copied()
        .find(|known| known.descriptor().service.name == service && known.descriptor().kind == kind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::KINDS;
    use crate::fields::{Field, Type};

    /// Calls back with the path of each field below `spec`.
    fn walk(fields: &[Field], path: &str, each: &mut dyn FnMut(&str, &Field)) {
        for field in fields {
            let path = format!("{path}{}", field.name);
            each(&path, field);
            let mut kind = &field.kind;
            while let Type::List(inner) | Type::Map(inner) = kind {
                kind = inner;
            }
            if let Type::Object(inner) = kind {
                walk(inner, &format!("{path}."), each);
            }
        }
    }

    #[test]
    fn every_reference_of_a_schema_is_resolved() {
        for descriptor in KINDS.iter().map(|kind| kind.descriptor()) {
            let known: BTreeSet<&str> = descriptor.references.iter().map(|known| known.reference).collect();
            let mut all = BTreeSet::new();
            walk(&descriptor.spec, "", &mut |path, field| {
                if field.is_reference() && path.ends_with("Ref") | path.ends_with("Refs") {
                    all.insert(path.to_owned());
                }
            });
            let all: BTreeSet<&str> = all.iter().map(String::as_str).collect();
            assert_eq!(all, known, "{}", descriptor.kind);
        }
    }

    /// Fields that are not compared with what AWS reports, and what stands in for that.
    const NOT_COMPARED: &[(&str, &str, &str)] = &[
        ("Function", "code", "by hash, sha256 and image"),
        ("Function", "functionEventInvokeConfig.functionName", "refused unless it is the object's own"),
        ("Function", "functionEventInvokeConfig.qualifier", "refused unless it is the object's own"),
        ("Function", "publish", "acts when code is created or changed"),
        ("Alias", "functionEventInvokeConfig.functionName", "refused unless it is the object's own"),
        ("Alias", "functionEventInvokeConfig.qualifier", "refused unless it is the object's own"),
        ("Alias", "permissions.functionURLAuthType", "sent with the statement"),
        ("Alias", "permissions.revisionID", "sent with the statement"),
        ("Alias", "provisionedConcurrencyConfig.functionName", "refused unless it is the object's own"),
        ("Alias", "provisionedConcurrencyConfig.qualifier", "refused unless it is the object's own"),
        ("API", "basepath", "by hash, with the body"),
        ("API", "body", "by hash"),
        ("API", "credentialsARN", "by hash"),
        ("API", "failOnWarnings", "acts on imports"),
        ("API", "routeKey", "by hash"),
        ("API", "target", "by hash"),
        ("Stage", "apiID", "identity"),
        ("Route", "apiID", "identity"),
        ("Integration", "apiID", "identity"),
        ("APIMapping", "domainName", "identity"),
        ("Certificate", "certificateARN", "immutable"),
        ("Certificate", "certificateAuthorityARN", "immutable"),
        ("Certificate", "domainValidationOptions", "immutable"),
        ("Certificate", "exportTo", "by the serial number that was exported"),
        ("HostedZone", "delegationSetID", "immutable"),
        ("HostedZone", "vpc", "compared by the kind"),
        ("HostedZone", "vpcs", "compared by the kind"),
        ("RecordSet", "hostedZoneID", "immutable"),
        ("RecordSet", "name", "immutable"),
        ("RecordSet", "setIdentifier", "immutable"),
        ("Bucket", "acl", "compared by the kind"),
        ("Bucket", "createBucketConfiguration", "acts on creation; the region of the bucket is compared"),
        ("Bucket", "grantFullControl", "compared by the kind"),
        ("Bucket", "grantRead", "compared by the kind"),
        ("Bucket", "grantReadACP", "compared by the kind"),
        ("Bucket", "grantWrite", "compared by the kind"),
        ("Bucket", "grantWriteACP", "compared by the kind"),
        ("Bucket", "namespace", "immutable"),
        ("Bucket", "objectLockEnabledForBucket", "compared by the kind"),
        ("Bucket", "objectOwnership", "compared by the kind, as ownershipControls"),
    ];

    #[test]
    fn every_field_is_compared_or_listed_with_its_reason() {
        let mut found = BTreeSet::new();
        for descriptor in KINDS.iter().map(|kind| kind.descriptor()) {
            walk(&descriptor.spec, "", &mut |path, field| {
                if field.ignored {
                    found.insert((descriptor.kind.to_owned(), path.to_owned()));
                }
            });
        }
        let listed = NOT_COMPARED.iter().map(|(kind, path, _)| ((*kind).to_owned(), (*path).to_owned()));
        assert_eq!(found, listed.collect());
    }
}
