from nearsight.experiments.report.markup import tag


def test_text_and_attributes_are_escaped_and_elements_are_not() -> None:
    inner = tag("b", "a < b & c")
    assert tag("p", inner, '"<', title='"<&') == (
        '<p title="&quot;&lt;&amp;"><b>a &lt; b &amp; c</b>&quot;&lt;</p>'
    )


def test_flags_stand_alone_and_what_is_empty_is_left_out() -> None:
    assert tag("details", open=True, class_="", hidden=False, aria_label="x") == (
        '<details open aria-label="x"></details>'
    )
    assert tag("td", 0, colspan=0) == '<td colspan="0">0</td>'


def test_elements_without_content_are_not_closed() -> None:
    assert tag("img", src="a.png") == '<img src="a.png">'
